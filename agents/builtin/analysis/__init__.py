"""What TorchInductor's generated C++ does: loops, accesses, buffers and their cost."""

"""CUDA C++ and Triton on a GPU: memory, clock and peaks of the device, as the referee owns them."""

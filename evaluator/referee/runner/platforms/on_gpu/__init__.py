"""CUDA C++ and Triton in a runner, on a GPU that is there."""

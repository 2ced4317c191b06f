"""Platform `triton` in a runner: kernels of Triton, interpreted on the host and compiled for GPUs."""

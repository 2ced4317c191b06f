"""Platform `opencl` in a runner: pyopencl and PoCL in the candidate's own process."""

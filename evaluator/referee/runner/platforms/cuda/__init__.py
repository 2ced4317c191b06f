"""Platform `cuda` in a runner: CUDA C++ built for the host's processor, and checked there."""

"""Platform `hip` in a runner: HIP run by the emulation of platform `cuda`, and compiled for AMD's GPUs by clang."""

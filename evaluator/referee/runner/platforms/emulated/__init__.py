"""Platforms whose kernels are C for another instruction set, run and counted under qemu-user: what they share."""

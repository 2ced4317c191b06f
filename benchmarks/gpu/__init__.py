"""Platforms `cuda` and `triton` on this host's GPU: `python -m benchmarks.gpu`."""

"""A program that asks a GPU from within the process sandbox, with the referee's parts; see `benchmarks.gpu.probe`."""

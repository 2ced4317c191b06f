"""The referee's mode `profile` on a GPU: what a candidate's kernels do there. It is never part of a verdict."""

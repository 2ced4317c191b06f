"""Whole models: what of one is hot, cut out as ordinary tasks, and put back as kernels."""

"""Kernels that were written by hand for regions of whole models, and what comes of them."""

"""Transforms of variations: each rewrites the generated kernels of a unit into kernels that may be faster."""

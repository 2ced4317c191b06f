"""The variations: each rewrites a generated kernel into one that may be faster."""

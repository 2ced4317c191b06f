"""The referee's half of the platforms: one folder or module each, behind the seam of `base`."""

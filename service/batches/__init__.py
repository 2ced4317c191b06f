"""Tasks x models x samples as jobs, and the figures that come of them."""

"""Platform `triton` on the host."""

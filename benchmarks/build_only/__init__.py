"""A sandbox command that builds a candidate and does nothing else."""

"""What platforms for GPUs have in common in a runner, where there is no GPU."""

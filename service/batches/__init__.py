"""Batches: jobs for all combinations of tasks, models and samples, and the figures of their results."""

"""Platforms for GPUs where there is one: its facts, and what differs on the host from screening."""

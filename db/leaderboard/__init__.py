"""Which evaluations rank, and the tables that keep their order."""

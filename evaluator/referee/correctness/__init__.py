"""Whether a candidate computes what the reference computes: families, oracle, tolerances, layout, state."""

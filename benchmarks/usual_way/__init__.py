"""How speedups are usually measured, for comparison with the referee."""

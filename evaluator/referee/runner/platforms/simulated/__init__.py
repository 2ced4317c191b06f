"""Platform `simulated` in a runner: programs are built of symbolic arrays, operators of torch are counted."""

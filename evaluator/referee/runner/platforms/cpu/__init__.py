"""Platform `cpu` in a runner: imports, threads, peaks."""

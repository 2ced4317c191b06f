"""Platform `cpu` on the referee's side: memory of processes, processor time, cores, caches, and the host's load."""

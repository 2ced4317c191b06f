"""Platform `cpu`: C++ with OpenMP on the processor of this host."""

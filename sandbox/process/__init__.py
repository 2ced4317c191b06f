"""The process sandbox: a jailed process of this host."""

"""The process sandbox, which runs a command as a jailed process of this host."""

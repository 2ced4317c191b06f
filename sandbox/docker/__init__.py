"""The Docker sandbox: a container a command."""

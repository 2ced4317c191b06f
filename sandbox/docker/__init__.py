"""The Docker sandbox, which runs each command in a container of its own."""

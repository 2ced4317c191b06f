"""A server's API, called by the command line."""

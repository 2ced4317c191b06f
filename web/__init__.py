"""The HTTP API and the pages: thin, they call service."""

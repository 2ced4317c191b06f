"""Authentication of requests, and limits on their number, size and time."""

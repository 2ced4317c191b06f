"""Tokens, who did what, and requests that are sent twice."""

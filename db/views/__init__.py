"""Queries that pages and metrics read."""

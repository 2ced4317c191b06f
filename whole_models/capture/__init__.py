"""Runs inside a sandbox: exports a model, runs it, and describes what it saw."""

"""Rendering of pages: templates, static files, highlighted source and pictures of speedups."""

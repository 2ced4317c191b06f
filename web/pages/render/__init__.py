"""Templates, static files, and what pages are made of."""

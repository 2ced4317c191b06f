"""Runs beside foreign code, in processes whose answers are claims. The referee's own side never imports it."""

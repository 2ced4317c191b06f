"""Puts the pages together."""

from fastapi import FastAPI


def add_to(app: FastAPI) -> None:
    """Add the pages, and the page that tells people of an error (`app.state.error_page`)."""

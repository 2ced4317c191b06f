"""Puts the pages together."""

from fastapi import FastAPI

from web.pages import batches, candidates, devices, errors, jobs, leaderboard, submit, tasks
from web.pages.render import assets


def add_to(app: FastAPI) -> None:
    """Add the pages, and the page that tells people of an error (`app.state.error_page`)."""
    app.state.error_page = errors.error_page
    for module in (assets, leaderboard, submit, jobs, candidates, tasks, batches, devices, errors):
        app.include_router(module.router)

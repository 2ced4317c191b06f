"""The page of workers and queues."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.jobs.liveness import LOST_AFTER_S
from service.views.devices import devices_view
from web.dependencies import Deps
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(prefix="/devices", include_in_schema=False)


@router.get("")
def show(request: Request, deps: Deps, _: Viewer) -> HTMLResponse:
    """All workers and the lengths of the queues. A script updates the page."""
    return page(request, "devices.html", view=devices_view(deps.store), lost_s=LOST_AFTER_S)


@router.get("/part")
def part(request: Request, deps: Deps, _: Viewer) -> HTMLResponse:
    """The part of the page that changes."""
    return page(request, "devices_part.html", view=devices_view(deps.store), lost_s=LOST_AFTER_S)

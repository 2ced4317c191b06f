"""Devices: the live workers."""

from datetime import UTC, datetime

from fastapi import APIRouter

from service.views.devices import live_workers
from web.api.schemas.results import Device, DeviceList
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/devices", tags=["devices"])
MAX_DEVICES = 1000


@router.get("", responses=problems())
def list_(deps: Deps, _: Viewer) -> DeviceList:
    """List the workers that have neither ended nor been declared lost, with the ages of their heartbeats."""
    now = datetime.now(UTC)
    return DeviceList(devices=[Device.of(worker, now) for worker in live_workers(deps.store, limit=MAX_DEVICES)])

"""Devices: the workers that live, and what they work for."""

from fastapi import APIRouter

from db.jobs.workers import list_workers
from db.types import utc_now
from web.api.schemas.results import Device, DeviceList
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/devices", tags=["devices"])
MAX_DEVICES = 1000


@router.get("", responses=problems())
def list_(deps: Deps, _: Viewer) -> DeviceList:
    """List the workers that have neither ended nor been given up, with how long ago each was heard of."""
    with deps.store.read() as session:
        found = list_workers(session, seen=True, limit=MAX_DEVICES)
    now = utc_now()
    return DeviceList(devices=[Device.of(worker, now) for worker in found])

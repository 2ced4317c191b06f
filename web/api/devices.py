"""Devices: the workers that live, and what they work for."""

from fastapi import APIRouter
from sqlalchemy import select

from db.tables import WorkerRow
from db.types import utc_now
from web.api.answers import problems
from web.api.schemas_results import Device, DeviceList
from web.identity import Viewer
from web.parts import TheParts

router = APIRouter(prefix="/devices", tags=["devices"])
_SEEN = ("alive", "stopping")


@router.get("", responses=problems())
def list_(parts: TheParts, _: Viewer) -> DeviceList:
    """List the workers that have not ended, with how long ago each was heard of."""
    query = select(WorkerRow).where(WorkerRow.status.in_(_SEEN)).order_by(WorkerRow.platform, WorkerRow.host)
    with parts.store.read() as session:
        rows = list(session.scalars(query.limit(1000)))
    now = utc_now()
    return DeviceList(devices=[Device.of(row, now) for row in rows])

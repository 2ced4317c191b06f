"""How a batch and the devices stand, told whenever it changes: server-sent events."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from db.jobs.batches import get_batch
from db.views.change_feed import BatchState
from service.submissions.access import NotAuthenticated, Principal, still_valid
from service.views.devices import DevicesState
from web.api.batches import BatchId
from web.api.events import NOT_KEPT, named, next_of, stream_of
from web.broadcast import DEVICES, Broadcaster, Topic
from web.dependencies import Dependencies, Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(tags=["events"])
_BATCH = stream_of(
    "`status`: how the batch stands, at once and whenever that changes; `end`: that nothing more happens in it.",
    'event: status\ndata: {"counts": {"done": 3, "running": 1}, "cost_usd": 0.12, "rounds_done": 9, "solved": 3,'
    ' "cancel_requested": false}\n\n',
)
_DEVICES = stream_of(
    "`status`: which workers there are, what each runs and how many jobs wait, at once and whenever that changes.",
    'event: status\ndata: {"workers": [{"worker_id": "5f", "state": "alive", "job_id": 7}],'
    ' "platforms": [{"name": "cpu", "alive": 1, "waiting": 0}]}\n\n',
)


@router.get("/batches/{batch_id}/events", response_class=StreamingResponse, responses={200: _BATCH, **problems(404)})
async def batch(request: Request, batch_id: BatchId, deps: Deps, principal: Viewer) -> StreamingResponse:
    """How a batch stands, until all of its jobs have ended."""
    await run_in_threadpool(_check, deps, batch_id)
    return _stream(request, deps, principal, Topic("batch", batch_id))


@router.get("/devices/events", response_class=StreamingResponse, responses={200: _DEVICES, **problems()})
async def devices(request: Request, deps: Deps, principal: Viewer) -> StreamingResponse:
    """Which workers come, get lost, are busy, until whoever listens goes."""
    return _stream(request, deps, principal, DEVICES)


def _check(deps: Dependencies, batch_id: int) -> None:
    with deps.store.read() as session:
        get_batch(session, batch_id)


def _stream(request: Request, deps: Dependencies, principal: Principal, topic: Topic) -> StreamingResponse:
    broadcaster: Broadcaster = request.app.state.broadcaster
    broadcaster.check_capacity(principal)
    messages = _messages(broadcaster, deps, principal, topic)
    return StreamingResponse(messages, media_type="text/event-stream", headers=NOT_KEPT)


async def _messages(
    broadcaster: Broadcaster, deps: Dependencies, principal: Principal, topic: Topic
) -> AsyncIterator[str]:
    async with broadcaster.listen(topic, principal) as (_, queue):
        yield "retry: 2000\n\n"
        state: BatchState | DevicesState | None = None
        while True:
            message = await next_of(queue)
            if message is None:
                if state is not None and state.ended:
                    yield named("end", _shown(state))
                return
            if message == "silence":
                try:
                    await run_in_threadpool(still_valid, deps.store, principal)
                except NotAuthenticated:
                    return
                yield ": still here\n\n"
            elif isinstance(message, BatchState | DevicesState):
                state = message
                yield named("status", _shown(message))


def _shown(state: BatchState | DevicesState) -> dict[str, Any]:
    if isinstance(state, BatchState):
        return asdict(state)
    names = ("worker_id", "state", "job_id")
    workers = [dict(zip(names, worker, strict=True)) for worker in state.workers]
    return {"workers": workers, "platforms": [asdict(platform) for platform in state.platforms]}

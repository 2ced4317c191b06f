"""Streams of server-sent events: the events of a job, and the states of a job, a batch or all devices."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from db.records import BatchState, EventRecord, JobState
from service.jobs.memory import MEMORY, without_sources
from service.submissions.access import Principal
from service.views.changes import check_batch, check_job, list_past_events
from service.views.devices import DevicesState
from web.api.batches import BatchId
from web.api.parameters import JobId
from web.broadcast import DEVICES, Broadcaster, Message, Topic
from web.dependencies import Dependencies, Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(tags=["events"])
KEEP_ALIVE_S = 15.0
MAX_EVENT_ID = 2**63 - 1
MAX_TEXT_CHARS = 4000
_NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_TEXT = {"type": "string"}
_MESSAGE = {"type": "object", "required": ["data"], "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}}


def _described(description: str, example: str) -> dict[str, Any]:
    """The OpenAPI description of a stream."""
    return {
        "description": description,
        "content": {"text/event-stream": {"schema": _MESSAGE, "example": example}},
    }


_JOB = _described(
    "Unnamed messages: events of the job. `status`: the job's state. `end`: its state when it has ended.",
    'id: 812\ndata: {"id": 812, "kind": "round_started", "round": 2, "data": {}, "at": "2026-01-01T12:00:00Z"}\n\n',
)
_BATCH = _described(
    "`status`: the batch's state, at once and after each change. `end`: nothing more happens in it.",
    'event: status\ndata: {"counts": {"done": 3, "running": 1}, "cost_usd": 0.12, "rounds_done": 9, "solved": 3,'
    ' "cancel_requested": false}\n\n',
)
_DEVICES = _described(
    "`status`: the workers, their jobs and the numbers of queued jobs, at once and after each change.",
    'event: status\ndata: {"workers": [{"worker_id": "5f", "state": "alive", "job_ids": [7]}],'
    ' "platforms": [{"name": "cpu", "alive": 1, "waiting": 0}]}\n\n',
)


@router.get("/jobs/{job_id}/events", response_class=StreamingResponse, responses={200: _JOB, **problems(404)})
async def stream(
    request: Request,
    job_id: JobId,
    deps: Deps,
    principal: Viewer,
    after: Annotated[int, Query(ge=0, le=MAX_EVENT_ID, description="Only events with a higher id.")] = 0,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            pattern=r"^[0-9]{1,18}$",
            description="The same as `after`; browsers send it when they reconnect.",
        ),
    ] = None,
) -> StreamingResponse:
    """The events of a job, from its beginning or after a given event, until the job ends.

    Sources, prompts and replies of models are left out. `end` is the last message.
    """
    await run_in_threadpool(check_job, deps.store, job_id)
    broadcaster = _broadcaster(request, principal)
    return _response(_job_messages(broadcaster, deps, principal, job_id, max(after, int(last_event_id or 0))))


@router.get("/batches/{batch_id}/events", response_class=StreamingResponse, responses={200: _BATCH, **problems(404)})
async def batch(request: Request, batch_id: BatchId, deps: Deps, principal: Viewer) -> StreamingResponse:
    """The state of a batch and its changes, until all jobs have ended."""
    await run_in_threadpool(check_batch, deps.store, batch_id)
    broadcaster = _broadcaster(request, principal)
    return _response(_state_messages(broadcaster, principal, Topic("batch", batch_id)))


@router.get("/devices/events", response_class=StreamingResponse, responses={200: _DEVICES, **problems()})
async def devices(request: Request, deps: Deps, principal: Viewer) -> StreamingResponse:
    """The state of the devices and its changes, until the client closes the connection."""
    broadcaster = _broadcaster(request, principal)
    return _response(_state_messages(broadcaster, principal, DEVICES))


def _broadcaster(request: Request, principal: Principal) -> Broadcaster:
    """The application's broadcaster, if it has room for this listener.

    Raises:
        ProblemError: There are too many listeners.
    """
    broadcaster: Broadcaster = request.app.state.broadcaster
    broadcaster.check_capacity(principal)
    return broadcaster


def _response(messages: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(messages, media_type="text/event-stream", headers=_NO_BUFFERING)


async def _job_messages(
    broadcaster: Broadcaster, deps: Dependencies, principal: Principal, job_id: int, after: int
) -> AsyncIterator[str]:
    async with broadcaster.listen(Topic("job", job_id), principal) as (last_id, queue):
        yield "retry: 2000\n\n"
        while after < last_id:
            events = await run_in_threadpool(list_past_events, deps.store, job_id, after=after, up_to=last_id)
            for event in events:
                yield _event(event)
            after = events[-1].id if events else last_id
        state: JobState | None = None
        while True:
            message = await _next_message(queue)
            match message:
                case EventRecord():
                    if message.id > after:
                        yield _event(message)
                case JobState():
                    state = message
                    yield _named("status", _job_json(message))
                case "silence":
                    yield ": still here\n\n"
                case _:
                    if state is not None and state.ended:
                        yield _named("end", _job_json(state))
                    return


async def _state_messages(broadcaster: Broadcaster, principal: Principal, topic: Topic) -> AsyncIterator[str]:
    async with broadcaster.listen(topic, principal) as (_, queue):
        yield "retry: 2000\n\n"
        state: BatchState | DevicesState | None = None
        while True:
            message = await _next_message(queue)
            if message is None:
                if state is not None and state.ended:
                    yield _named("end", _state_json(state))
                return
            if message == "silence":
                yield ": still here\n\n"
            elif isinstance(message, BatchState | DevicesState):
                state = message
                yield _named("status", _state_json(message))


async def _next_message(queue: asyncio.Queue[Message]) -> Message | Literal["silence"]:
    """The next message, or `silence` if none came for `KEEP_ALIVE_S`."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            return await queue.get()
    except TimeoutError:
        return "silence"


def _event(event: EventRecord) -> str:
    at = None if event.created_at is None else event.created_at.isoformat().replace("+00:00", "Z")
    told = _shortened(without_sources(event.data) if event.kind == MEMORY else event.data)
    data = {"id": event.id, "kind": event.kind, "round": event.round, "data": told, "at": at}
    return f"id: {event.id}\ndata: {json.dumps(data)}\n\n"


def _named(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _job_json(state: JobState) -> dict[str, Any]:
    return {**vars(state), "status": state.status.value}


def _state_json(state: BatchState | DevicesState) -> dict[str, Any]:
    if isinstance(state, BatchState):
        return asdict(state)
    names = ("worker_id", "state", "job_ids")
    workers = [dict(zip(names, worker, strict=True)) for worker in state.workers]
    return {"workers": workers, "platforms": [asdict(platform) for platform in state.platforms]}


def _shortened(value: Any) -> Any:
    """A JSON value with its texts cut at `MAX_TEXT_CHARS`."""
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return value[:MAX_TEXT_CHARS] + " …"
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value

"""Events of a job as they happen: server-sent events that can be taken up where they broke off."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from db.jobs import jobs as kept_jobs
from db.records import EventRecord
from db.views import change_feed
from db.views.change_feed import JobState
from service.submissions.access import NotAuthenticated, Principal, still_valid
from web.api.parameters import JobId
from web.broadcast import Broadcaster, Message, Topic
from web.dependencies import Dependencies, Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/jobs/{job_id}/events", tags=["events"])
KEEP_ALIVE_S = 15.0
MAX_EVENT_ID = 2**63 - 1
MAX_TEXT_CHARS = 4000
_EXAMPLE = (
    'id: 812\ndata: {"id": 812, "kind": "round_started", "round": 2, "data": {}, "at": "2026-01-01T12:00:00Z"}\n\n'
)
_TEXT = {"type": "string"}
_MESSAGE = {"type": "object", "required": ["data"], "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}}
NOT_KEPT = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def stream_of(description: str, example: str) -> dict[str, Any]:
    """How a stream is described."""
    return {
        "description": description,
        "content": {"text/event-stream": {"schema": _MESSAGE, "example": example}},
    }


_STREAM = stream_of("Unnamed events: what happened; `status`: how the job stands; `end`: how it ended.", _EXAMPLE)


@router.get("", response_class=StreamingResponse, responses={200: _STREAM, **problems(404)})
async def stream(
    request: Request,
    job_id: JobId,
    deps: Deps,
    principal: Viewer,
    after: Annotated[int, Query(ge=0, le=MAX_EVENT_ID, description="Only events with a higher id.")] = 0,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$", description="The same, from a browser.")
    ] = None,
) -> StreamingResponse:
    """Everything that happens in a job, from its beginning or from an event on, until it ends.

    Bulky parts (sources, what models were asked and said) are left out. After `end` there is nothing more to wait for.
    """
    await run_in_threadpool(_check, deps, job_id)
    begin = max(after, int(last_event_id or 0))
    broadcaster: Broadcaster = request.app.state.broadcaster
    broadcaster.check_capacity(principal)
    messages = _messages(broadcaster, deps, principal, job_id, begin)
    return StreamingResponse(messages, media_type="text/event-stream", headers=NOT_KEPT)


async def _messages(
    broadcaster: Broadcaster, deps: Dependencies, principal: Principal, job_id: int, after: int
) -> AsyncIterator[str]:
    async with broadcaster.listen(Topic("job", job_id), principal) as (upto, queue):
        yield "retry: 2000\n\n"
        while after < upto:
            events = await run_in_threadpool(_backlog, deps, job_id, after, upto)
            for event in events:
                yield _event(event)
            after = events[-1].id if events else upto
        state: JobState | None = None
        while True:
            message = await next_of(queue)
            match message:
                case EventRecord():
                    if message.id > after:
                        yield _event(message)
                case JobState():
                    state = message
                    yield named("status", _state(message))
                case "silence":
                    try:
                        await run_in_threadpool(still_valid, deps.store, principal)
                    except NotAuthenticated:
                        return
                    yield ": still here\n\n"
                case _:
                    if state is not None and state.ended:
                        yield named("end", _state(state))
                    return


async def next_of(queue: asyncio.Queue[Message]) -> Message | Literal["silence"]:
    """The next message, or `silence` where none came for a while."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            return await queue.get()
    except TimeoutError:
        return "silence"


def _check(deps: Dependencies, job_id: int) -> None:
    with deps.store.read() as session:
        kept_jobs.get_job(session, job_id)


def _backlog(deps: Dependencies, job_id: int, after: int, upto: int) -> list[EventRecord]:
    with deps.store.read() as session:
        return change_feed.backlog(session, job_id, after=after, upto=upto)


def event_json(event: EventRecord) -> dict[str, Any]:
    """An event as clients read it."""
    at = None if event.created_at is None else event.created_at.isoformat().replace("+00:00", "Z")
    return {"id": event.id, "kind": event.kind, "round": event.round, "data": _shortened(event.data), "at": at}


def _event(event: EventRecord) -> str:
    return f"id: {event.id}\ndata: {json.dumps(event_json(event))}\n\n"


def named(name: str, data: Mapping[str, Any]) -> str:
    """A message with a name, as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _state(state: JobState) -> dict[str, Any]:
    return {**vars(state), "status": state.status.value}


def _shortened(value: Any) -> Any:
    """A value without texts that nobody reads live."""
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return value[:MAX_TEXT_CHARS] + " …"
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value

"""Watches jobs for everyone who listens: one look at the store every half second, however many listen."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from db import watching
from db.errors import StoreError
from db.records import EventRecord
from db.watching import JobState
from service.access import Principal
from web.parts import Parts
from web.problems import ProblemError

POLL_S = 0.5
MAX_LISTENERS = 1000
MAX_LISTENERS_EACH = 100  # of one user, by whichever token; the local user has all for himself
MAX_WAITING = 5000  # messages that one listener has not taken; a slower one is cut off, and may come back
_log = logging.getLogger(__name__)

Message = EventRecord | JobState | None
"""An event, a change of the job's state, or None: the stream is over."""


@dataclass
class _Watched:
    last_id: int
    state: JobState | None = None
    listeners: set[asyncio.Queue[Message]] = field(default_factory=set)

    def tell(self, message: Message) -> None:
        """Give a message to all who listen."""
        for queue in list(self.listeners):
            if queue.full():
                self.listeners.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)


class Hub:
    """The listeners of one application; lives in its event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._watched: dict[int, _Watched] = {}
        self._each: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return sum(len(watched.listeners) for watched in self._watched.values())

    def check_room(self, principal: Principal) -> None:
        """Refuse one more listener where there are too many, or too many of this user.

        Raises:
            ProblemError: says when to try again.
        """
        if self.listeners >= MAX_LISTENERS:
            raise ProblemError(503, "too many listen to events now; try again later", headers={"Retry-After": "30"})
        if principal.token_id is not None and self._each[principal.user] >= MAX_LISTENERS_EACH:
            detail = f"{MAX_LISTENERS_EACH} streams of events at once are allowed; end one, or try again later"
            raise ProblemError(429, detail, headers={"Retry-After": "30"})

    @contextlib.asynccontextmanager
    async def listen(self, job_id: int, principal: Principal) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        """While the block runs, the queue is given what happens in the job after the event whose id goes with it."""
        self._each[principal.user] += 1
        try:
            async with self._listen(job_id) as found:
                yield found
        finally:
            self._each[principal.user] -= 1
            self._each += Counter()  # forgets those at 0

    @contextlib.asynccontextmanager
    async def _listen(self, job_id: int) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        if job_id not in self._watched:
            last_id = await run_in_threadpool(self._last_id, job_id)
            self._watched.setdefault(job_id, _Watched(last_id))  # another may have come meanwhile
        watched = self._watched[job_id]
        queue: asyncio.Queue[Message] = asyncio.Queue(MAX_WAITING)
        if watched.state is not None:
            queue.put_nowait(watched.state)
        watched.listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield watched.last_id, queue
        finally:
            watched.listeners.discard(queue)
            if not watched.listeners and self._watched.get(job_id) is watched:
                del self._watched[job_id]

    async def _watch(self) -> None:
        while self._watched:
            if self._parts.stopping():
                for job_id in list(self._watched):
                    self._end(job_id)
                return
            try:
                await self._look()
            except StoreError as error:
                _log.warning("events cannot be read: %s", error)
            await asyncio.sleep(POLL_S)

    async def _look(self) -> None:
        asked = {job_id: watched.last_id for job_id, watched in self._watched.items()}
        states, events = await run_in_threadpool(self._read, asked)
        told = set()
        for job_id, event in events:
            watched = self._watched.get(job_id)
            if watched is not None and event.id > watched.last_id:
                watched.last_id = event.id
                watched.tell(event)
                told.add(job_id)
        for job_id in asked.keys() & self._watched.keys():
            watched, state = self._watched[job_id], states.get(job_id)
            if state is not None and state != watched.state:
                watched.state = state
                watched.tell(state)
            # What could not be read at once comes with the next look.
            if (state is None or state.ended) and job_id not in told:
                self._end(job_id)

    def _end(self, job_id: int) -> None:
        self._watched.pop(job_id).tell(None)

    def _last_id(self, job_id: int) -> int:
        with self._parts.store.read() as session:
            return watching.last_event_id(session, job_id)

    def _read(self, asked: dict[int, int]) -> tuple[dict[int, JobState], list[tuple[int, EventRecord]]]:
        with self._parts.store.read() as session:
            return watching.states(session, list(asked)), watching.events_after(session, asked)

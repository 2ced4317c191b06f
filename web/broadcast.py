"""Watches jobs, batches and devices for everyone who listens: one look at the store every half second, for all."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from starlette.concurrency import run_in_threadpool

from db.errors import StoreError
from db.records import EventRecord
from db.views import change_feed
from db.views.change_feed import BatchState, JobState
from service.submissions.access import Principal
from service.views.devices import DevicesState, devices_state
from web.dependencies import Dependencies
from web.problems import ProblemError

POLL_S = 0.5
MAX_LISTENERS = 1000
MAX_LISTENERS_EACH = 100  # of one user, by whichever token; the local user has all for himself
MAX_WAITING = 5000  # messages that one listener has not taken; a slower one is cut off, and may come back
_log = logging.getLogger(__name__)

State = JobState | BatchState | DevicesState
Message = EventRecord | State | None
"""An event, a change of how what is watched stands, or None: the stream is over."""


class Subject(NamedTuple):
    """What can be watched: a job, with its events, a batch, or (`id` 0) all devices."""

    kind: Literal["job", "batch", "devices"]
    id: int = 0


DEVICES = Subject("devices")


@dataclass
class _Watched:
    last_id: int
    state: State | None = None
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

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._watched: dict[Subject, _Watched] = {}
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
    async def listen(self, subject: Subject, principal: Principal) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        """While the block runs, the queue is given how the subject stands and each change of it; of a job also what
        happens after the event whose id goes with the queue.
        """
        self._each[principal.user] += 1
        try:
            async with self._listen(subject) as found:
                yield found
        finally:
            self._each[principal.user] -= 1
            self._each += Counter()  # forgets those at 0

    @contextlib.asynccontextmanager
    async def _listen(self, subject: Subject) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        if subject not in self._watched:
            last_id = await run_in_threadpool(self._last_id, subject) if subject.kind == "job" else 0
            self._watched.setdefault(subject, _Watched(last_id))  # another may have come meanwhile
        watched = self._watched[subject]
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
            if not watched.listeners and self._watched.get(subject) is watched:
                del self._watched[subject]

    async def _watch(self) -> None:
        while self._watched:
            if self._deps.stopping():
                for subject in list(self._watched):
                    self._end(subject)
                return
            try:
                await self._look()
            except StoreError as error:
                _log.warning("events cannot be read: %s", error)
            except Exception:  # whoever listens must not be left waiting for ever
                _log.exception("events cannot be read")
            await asyncio.sleep(POLL_S)

    async def _look(self) -> None:
        asked = {subject: watched.last_id for subject, watched in self._watched.items()}
        states, events = await run_in_threadpool(self._read, asked)
        told = set()
        for job_id, event in events:
            subject = Subject("job", job_id)
            watched = self._watched.get(subject)
            if watched is not None and event.id > watched.last_id:
                watched.last_id = event.id
                watched.tell(event)
                told.add(subject)
        for subject in asked.keys() & self._watched.keys():
            watched, state = self._watched[subject], states.get(subject)
            if state is not None and state != watched.state:
                watched.state = state
                watched.tell(state)
            # What could not be read at once comes with the next look.
            if (state is None or state.ended) and subject not in told:
                self._end(subject)

    def _end(self, subject: Subject) -> None:
        self._watched.pop(subject).tell(None)

    def _last_id(self, subject: Subject) -> int:
        with self._deps.store.read() as session:
            return change_feed.last_event_id(session, subject.id)

    def _read(self, asked: Mapping[Subject, int]) -> tuple[dict[Subject, State], list[tuple[int, EventRecord]]]:
        jobs = {subject.id: last for subject, last in asked.items() if subject.kind == "job"}
        batches = [subject.id for subject in asked if subject.kind == "batch"]
        found: dict[Subject, State] = {DEVICES: devices_state(self._deps.store)} if DEVICES in asked else {}
        with self._deps.store.read() as session:
            found |= {Subject("job", key): state for key, state in change_feed.states(session, list(jobs)).items()}
            found |= {Subject("batch", key): state for key, state in change_feed.batch_states(session, batches).items()}
            return found, change_feed.events_after(session, jobs)

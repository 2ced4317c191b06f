"""Sends changes of jobs, batches and devices to everyone who listens. One task polls the store for all listeners.

With each poll it looks which of their tokens are still valid, so a stream ends as soon as its token is revoked.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from starlette.concurrency import run_in_threadpool

from db.errors import StoreError
from db.records import BatchState, EventRecord, JobState
from service.submissions.access import Principal, valid_tokens
from service.views.changes import last_event_id, read_changes
from service.views.devices import DevicesState, devices_state
from web.dependencies import Dependencies
from web.problems import ProblemError

POLL_INTERVAL_S = 0.5
MAX_LISTENERS = 1000
MAX_LISTENERS_PER_USER = 100  # whichever tokens the user has; the local user has no limit of its own
MAX_PENDING_MESSAGES = 5000  # a listener that has not taken so many is disconnected, and may connect again
_log = logging.getLogger(__name__)

State = JobState | BatchState | DevicesState
Message = EventRecord | State | None
"""An event of a job, a changed state of the topic, or None at the end of the stream."""


class Topic(NamedTuple):
    """What can be listened to: a job with its events, a batch, or all devices (`id` 0)."""

    kind: Literal["job", "batch", "devices"]
    id: int = 0


DEVICES = Topic("devices")


@dataclass
class _Channel:
    """The listeners of one topic, its last known state and, of a job, the id of the last event that was sent."""

    last_event_id: int
    state: State | None = None
    listeners: set[asyncio.Queue[Message]] = field(default_factory=set)

    def send(self, message: Message) -> None:
        """Queue a message for every listener. A listener whose queue is full is disconnected."""
        for queue in list(self.listeners):
            if queue.full():
                self.disconnect(queue)
            else:
                queue.put_nowait(message)

    def disconnect(self, queue: asyncio.Queue[Message]) -> None:
        """End a listener's stream: it gets None instead of all that it has not taken yet."""
        self.listeners.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


class Broadcaster:
    """The event streams of one application. All its methods but the store's reads run in the server's event loop."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._channels: dict[Topic, _Channel] = {}
        self._listeners_by_user: Counter[str] = Counter()
        self._tokens: dict[asyncio.Queue[Message], int] = {}  # of listeners that are not the local user
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """The number of listeners, of all topics."""
        return sum(len(channel.listeners) for channel in self._channels.values())

    def check_capacity(self, principal: Principal) -> None:
        """Refuse one more listener if there are too many, or too many of this user.

        Raises:
            ProblemError: The limit is reached; `Retry-After` says when to try again.
        """
        if self.listeners >= MAX_LISTENERS:
            raise ProblemError(503, "too many listen to events now; try again later", headers={"Retry-After": "30"})
        if principal.token_id is not None and self._listeners_by_user[principal.user] >= MAX_LISTENERS_PER_USER:
            detail = f"{MAX_LISTENERS_PER_USER} streams of events at once are allowed; end one, or try again later"
            raise ProblemError(429, detail, headers={"Retry-After": "30"})

    @contextlib.asynccontextmanager
    async def listen(self, topic: Topic, principal: Principal) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        """Listen to a topic for the length of the block.

        Yields:
            An event id and a queue. The queue receives the topic's state and every change of it, and of a job all
            events with a higher id; of other topics the id is 0. When the listener's token ends, so does the queue.
        """
        self._listeners_by_user[principal.user] += 1
        try:
            async with self._listen(topic, principal.token_id) as found:
                yield found
        finally:
            self._listeners_by_user[principal.user] -= 1
            self._listeners_by_user += Counter()  # removes users without listeners

    @contextlib.asynccontextmanager
    async def _listen(self, topic: Topic, token_id: int | None) -> AsyncIterator[tuple[int, asyncio.Queue[Message]]]:
        if topic not in self._channels:
            last_id = await run_in_threadpool(last_event_id, self._deps.store, topic.id) if topic.kind == "job" else 0
            self._channels.setdefault(topic, _Channel(last_id))  # another listener may have added it meanwhile
        channel = self._channels[topic]
        queue: asyncio.Queue[Message] = asyncio.Queue(MAX_PENDING_MESSAGES)
        if channel.state is not None:
            queue.put_nowait(channel.state)
        channel.listeners.add(queue)
        if token_id is not None:
            self._tokens[queue] = token_id
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll_while_listened_to())
        try:
            yield channel.last_event_id, queue
        finally:
            channel.listeners.discard(queue)
            self._tokens.pop(queue, None)
            if not channel.listeners and self._channels.get(topic) is channel:
                del self._channels[topic]

    async def _poll_while_listened_to(self) -> None:
        while self._channels:
            if self._deps.stopping():
                for topic in list(self._channels):
                    self._close(topic)
                return
            try:
                await self._poll()
            except StoreError as error:
                _log.warning("events cannot be read: %s", error)
            except Exception:  # the task must survive: nothing else would ever wake the listeners
                _log.exception("events cannot be read")
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll(self) -> None:
        asked = {topic: channel.last_event_id for topic, channel in self._channels.items()}
        tokens = dict(self._tokens)
        valid = await run_in_threadpool(valid_tokens, self._deps.store, set(tokens.values()))
        for queue in [queue for queue, token_id in tokens.items() if token_id not in valid]:
            for each in self._channels.values():
                if queue in each.listeners:
                    each.disconnect(queue)
        states, events = await run_in_threadpool(self._read, asked)
        with_events = set()
        for job_id, event in events:
            topic = Topic("job", job_id)
            channel = self._channels.get(topic)
            if channel is not None and event.id > channel.last_event_id:
                channel.last_event_id = event.id
                channel.send(event)
                with_events.add(topic)
        for topic in asked.keys() & self._channels.keys():
            channel, state = self._channels[topic], states.get(topic)
            if state is not None and state != channel.state:
                channel.state = state
                channel.send(state)
            # A read is limited: where events came, the next poll may find more.
            if (state is None or state.ended) and topic not in with_events:
                self._close(topic)

    def _close(self, topic: Topic) -> None:
        self._channels.pop(topic).send(None)

    def _read(self, asked: Mapping[Topic, int]) -> tuple[dict[Topic, State], Sequence[tuple[int, EventRecord]]]:
        job_ids = {topic.id: last for topic, last in asked.items() if topic.kind == "job"}
        batch_ids = [topic.id for topic in asked if topic.kind == "batch"]
        changes = read_changes(self._deps.store, last_event_ids=job_ids, batch_ids=batch_ids)
        states: dict[Topic, State] = {DEVICES: devices_state(self._deps.store)} if DEVICES in asked else {}
        states |= {Topic("job", job_id): job for job_id, job in changes.jobs.items()}
        states |= {Topic("batch", batch_id): batch for batch_id, batch in changes.batches.items()}
        return states, changes.events

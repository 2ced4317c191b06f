"""The weights of models: read from a file, kept in the store, and given to the jobs that name them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from sqlalchemy.orm import Session

from db.jobs import weights as stored
from db.records import WEIGHTS, JobRecord
from db.store import Store
from db.types import utc_now
from service.errors import BadRequest, Conflict
from tasks.weights_file import MAX_STATE_BYTES, WeightRow, Weights, WeightsError, digest_of, read_rows, read_weights

PART_BYTES = 4 << 20
"""The bytes that one transaction writes."""

KEPT = timedelta(days=7)
"""Weights that no job has read for so long, and that no open job works with, are removed when others are kept."""

_PATH = "state"
"""The option in which older versions stored the file with a run's weights."""

_TOUCHED_EVERY = timedelta(hours=1)


@dataclass(frozen=True)
class WeightsSource:
    """Weights that can be read in parts.

    Attributes:
        tensors: what the file's header names.
        digest: `Weights.digest`.
        size_bytes: the bytes of all tensors.
        part: the bytes of the part at a position, `PART_BYTES` of them but for the last.
    """

    tensors: tuple[WeightRow, ...]
    digest: str
    size_bytes: int
    part: Callable[[int], bytes]


def read_state(path: Path) -> Weights:
    """Read a file with the weights of a task's model.

    Raises:
        BadRequest: it cannot be read, is empty or larger than 2 GiB, or is no safetensors file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STATE_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"--state {path}: cannot be read ({error.strerror}); name a .safetensors file") from error
    if not data:
        raise BadRequest(f"--state {path}: is empty; name a .safetensors file with the model's weights")
    try:
        return read_weights(data)
    except WeightsError as error:
        raise BadRequest(f"--state {path}: {error}") from error


def source_of(weights: Weights) -> WeightsSource:
    """Weights in memory in parts."""
    elements = weights.elements
    return WeightsSource(
        weights.rows,
        weights.digest,
        len(elements),
        lambda position: elements[position * PART_BYTES : (position + 1) * PART_BYTES],
    )


def source_of_file(file: BinaryIO, size_bytes: int) -> WeightsSource:
    """The weights in a file of so many bytes, which is read once from its beginning, and again for each part.

    Raises:
        BadRequest: it is no safetensors file, or too large.
    """
    file.seek(0)
    try:
        tensors = read_rows(file, size_bytes)
    except WeightsError as error:
        raise BadRequest(f"the weights: {error}") from error
    begin = file.tell()

    def part(position: int) -> bytes:
        file.seek(begin + position * PART_BYTES)
        return file.read(PART_BYTES)

    parts = itertools.takewhile(bool, (part(position) for position in itertools.count()))
    return WeightsSource(tensors, digest_of(tensors, parts), size_bytes - begin, part)


def keep_weights(
    store: Store, user: str, source: WeightsSource, *, check: Callable[[Session], None] = lambda session: None
) -> bool:
    """Keep weights for jobs of a user. What was interrupted goes on with the parts that are missing.

    Args:
        store: the store.
        user: the user.
        source: the weights.
        check: called in the first transaction, if they are not kept yet; what it raises ends this.

    Returns:
        Whether they were not kept before.

    Raises:
        Conflict: they were removed meanwhile.
    """
    digest = source.digest
    _remove_unused(store, but_for=(user, digest))
    with store.write(announce=False) as session:
        stored.lock_weights(session, user)
        if stored.find_weights(session, user, digest) is not None:
            stored.touch_weights(session, user, digest)
            return False
        check(session)
        there = stored.begin_weights(session, user, digest, source.tensors, size_bytes=source.size_bytes)
    removed = Conflict(f"the weights {digest[:12]} were removed while they were sent; send them again")
    for position in range(-(-source.size_bytes // PART_BYTES)):
        if position in there:
            continue
        data = source.part(position)
        with store.write(announce=False) as session:
            stored.lock_weights(session, user)
            if not stored.add_part(session, user, digest, position, data):
                raise removed
    with store.write(announce=False) as session:
        stored.lock_weights(session, user)
        if not stored.complete_weights(session, user, digest):
            raise removed
    return True


def remove_weights(store: Store, user: str, digest: str, *, used_at: datetime) -> None:
    """Remove weights whose removal has begun, unless they were used after `used_at`; by many short transactions."""
    more = True
    while more:
        with store.write(announce=False) as session:
            stored.lock_weights(session, user)
            more = stored.remove_some(session, user, digest, used_at=used_at)


def _remove_unused(store: Store, *, but_for: tuple[str, str]) -> None:
    """Remove what no job has read for long and no open job works with, of all users, but for what is sent now."""
    before = utc_now() - KEPT
    with store.read() as session:
        old = stored.list_unused(session, before)
    for user, digest in old:
        if (user, digest) == but_for:
            continue
        with store.write(announce=False) as session:
            stored.lock_weights(session, user)  # a job that names them is not stored between these two looks
            wanted = stored.is_wanted(session, user, digest)
            used_at = None if wanted else stored.begin_removal(session, user, digest, before=before)
        if used_at is not None:
            remove_weights(store, user, digest, used_at=used_at)


def keep_state(store: Store, user: str, path: Path) -> str:
    """Keep the weights in a file of this machine for jobs of a user; their digest.

    Raises:
        BadRequest, Conflict: as `read_state` and `keep_weights`.
    """
    weights = read_state(path)
    keep_weights(store, user, source_of(weights))
    return weights.digest


def require_weights(session: Session, user: str, digest: str | None) -> None:
    """Refuse weights that are not kept for a user, in the transaction that stores a job which names them.

    Args:
        session: the transaction.
        user: the job's user.
        digest: the weights; None: the job names none.

    Raises:
        BadRequest: they are not kept.
    """
    if digest is None:
        return
    stored.lock_weights(session, user)
    if stored.find_weights(session, user, digest) is None:
        raise BadRequest(f"weights {digest[:12]}: are not kept for {user}; send the file first (PUT /api/v1/weights)")
    stored.touch_weights(session, user, digest)


def weights_named(job: JobRecord) -> str | None:
    """The digest of the weights that a job names; None if it names none.

    Raises:
        BadRequest: an older version began the job with weights, and stored the name of their file alone.
    """
    digest = job.options.get(WEIGHTS)
    if digest is None and job.options.get(_PATH) is not None:
        raise BadRequest(f"job {job.id} was begun by an older version with weights that it did not name; start anew")
    return None if digest is None else str(digest)


def has_weights(session: Session, job: JobRecord) -> bool:
    """Whether a job can have the weights that it was begun with, if there are any."""
    digest = job.options.get(WEIGHTS)
    if digest is None:
        return job.options.get(_PATH) is None
    return stored.find_weights(session, job.user, str(digest)) is not None


def check_weights(session: Session, job: JobRecord) -> None:
    """Refuse a job that cannot have the weights that it was begun with.

    Raises:
        BadRequest: they are not kept any more, or as `weights_named`.
    """
    digest = weights_named(job)
    if not has_weights(session, job):
        again = f"models resume {job.id}" if job.kind == "model" else "evaluate OP CANDIDATE"
        raise BadRequest(
            f"the weights of job {job.id} ({str(digest)[:12]}) are not kept: they go {KEPT.days} days after their last"
            f" use; give them again: kernelwright {again} --state FILE"
        )


class WeightsReader:
    """Reads the weights of jobs from a store. Those that were read last stay in memory.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._last: tuple[tuple[str, str], Weights] | None = None

    def of(self, job: JobRecord) -> Weights | None:
        """The weights that a job names; None if it names none.

        Raises:
            BadRequest: they are not kept any more.
        """
        digest = weights_named(job)
        if digest is None:
            return None
        named = job.user, digest
        with self._lock:
            if self._last is None or self._last[0] != named:
                self._last = None  # two would be in memory otherwise
                self._last = named, self._read(job, digest)
            self._touch(*named)
            return self._last[1]

    def _read(self, job: JobRecord, digest: str) -> Weights:
        with self._store.read() as session:
            check_weights(session, job)
            tensors = stored.get_tensors(session, job.user, digest)
            weights = Weights(tuple(tensors), stored.get_elements(session, job.user, digest))
        if weights.digest != digest:
            raise BadRequest(
                f"the weights of job {job.id} ({digest[:12]}) are damaged in the store; remove them"
                f" (DELETE /api/v1/weights/{digest}) and send them anew"
            )
        return weights

    def _touch(self, user: str, digest: str) -> None:
        with self._store.read() as session:
            found = stored.find_weights(session, user, digest)
        if found is not None and found.used_at < utc_now() - _TOUCHED_EVERY:
            with self._store.write(announce=False) as session:
                stored.touch_weights(session, user, digest)

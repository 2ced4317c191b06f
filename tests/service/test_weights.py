"""Weights in the store: sent in parts, kept for one user, read by jobs, and removed when nobody has use for them."""

import io
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from db.evaluations import tasks
from db.jobs import job_queue, jobs
from db.jobs import weights as stored
from db.records import WEIGHTS, JobRecord
from db.store import Store
from db.tables import WeightsPartRow, WeightsRow
from db.types import utc_now
from service.errors import BadRequest, Conflict
from service.weights import (
    KEPT,
    WeightsReader,
    WeightsSource,
    keep_weights,
    read_state,
    remove_weights,
    require_weights,
    source_of,
    source_of_file,
)
from tasks.weights_file import Weights, read_weights
from tests.support.commands import ROOT
from tests.support.weights import state_file

FILE = state_file({"weight": ("F32", [5], bytes(range(20))), "\ud800\x00": ("U8", [3], b"abc")})
OTHER = state_file({"weight": ("F32", [1], b"efgh")})
LONG = state_file({"weight": ("U8", [37], bytes(range(37)))})
KEEPS_TWO_PARTS = """
import sys
from dataclasses import replace
from pathlib import Path
import service.weights
from db.engine import open_store
from service.weights import keep_weights, source_of
from tasks.weights_file import read_weights

service.weights.PART_BYTES = 8
whole = source_of(read_weights(Path(sys.argv[2]).read_bytes()))

def part(position):
    if position == 2:
        print("asked for the third part", flush=True)
        sys.stdin.read()
    return whole.part(position)

keep_weights(open_store(sys.argv[1]), "ann", replace(whole, part=part))
"""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of eight bytes: those of `FILE` are three, the last of which is shorter."""
    monkeypatch.setattr("service.weights.PART_BYTES", 8)


def job_with(store: Store, digest: str, *, user: str = "ann") -> JobRecord:
    with store.write() as session:
        task = tasks.add_task(session, suite="s", name="net", source_hash="h", source="x", category="c", dtype="f")
        job_id = job_queue.add_queued_job(
            session,
            task_id=task,
            kind="model",
            platform="cpu",
            model="m",
            strategy="judge",
            options={WEIGHTS: digest},
            user=user,
            priority=0,
        )
    with store.read() as session:
        return jobs.get_job(session, job_id)


def kept(store: Store, user: str = "ann") -> list[str]:
    with store.read() as session:
        return [each.digest for each in stored.list_weights(session, user) if each.complete]


def age(store: Store, by: timedelta) -> None:
    with store.write() as session:
        session.execute(update(WeightsRow).values(used_at=utc_now() - by))


def begin_removal(store: Store, digest: str) -> datetime:
    with store.write() as session:
        used_at = stored.begin_removal(session, "ann", digest)
        assert used_at is not None
        return used_at


def remove(store: Store, digest: str) -> None:
    remove_weights(store, "ann", digest, used_at=begin_removal(store, digest))


def parts(store: Store) -> list[bytes]:
    with store.read() as session:
        return list(session.scalars(select(WeightsPartRow.data).order_by(WeightsPartRow.position)))


def test_weights_in_memory_and_those_in_a_file_are_the_same() -> None:
    weights = read_weights(FILE)
    for source in (source_of(weights), source_of_file(io.BytesIO(FILE), len(FILE))):
        assert (source.digest, source.tensors, source.size_bytes) == (weights.digest, weights.rows, 23)
        assert [source.part(position) for position in (2, 0, 1)] == [
            weights.elements[16:],
            weights.elements[:8],
            weights.elements[8:16],
        ]


@pytest.mark.parametrize("data", [b"", FILE[:-1], FILE + b"x", b"PK\x03\x04" * 9])
def test_a_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot be read as a safetensors file"):
        source_of_file(io.BytesIO(data), len(data))


def test_a_job_reads_the_weights_that_its_user_has_sent(store: Store) -> None:
    weights = read_weights(FILE)
    assert keep_weights(store, "ann", source_of(weights))
    assert not keep_weights(store, "ann", source_of(weights)), "they are kept once"
    assert parts(store) == [weights.elements[:8], weights.elements[8:16], weights.elements[16:]]
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights


def test_weights_without_elements_can_be_kept(store: Store) -> None:
    weights = read_weights(state_file({"none": ("F32", [0], b"")}))
    keep_weights(store, "ann", source_of(weights))
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights


def test_of_another_users_weights_nothing_is_read(store: Store) -> None:
    weights = read_weights(FILE)
    keep_weights(store, "ann", source_of(weights))
    reader = WeightsReader(store)
    assert reader.of(job_with(store, weights.digest)) == weights
    with store.write() as session, pytest.raises(BadRequest, match="are not kept for bob"):
        require_weights(session, "bob", weights.digest)
    with pytest.raises(BadRequest, match="are not kept"):
        reader.of(job_with(store, weights.digest, user="bob"))


def test_what_was_interrupted_goes_on_with_the_parts_that_are_missing(store: Store) -> None:
    weights = read_weights(FILE)
    whole = source_of(weights)
    asked: list[int] = []

    def part(position: int) -> bytes:
        asked.append(position)
        if position == 1 and len(asked) == 2:
            raise KeyboardInterrupt
        return whole.part(position)

    source = WeightsSource(whole.tensors, whole.digest, whole.size_bytes, part)
    with pytest.raises(KeyboardInterrupt):
        keep_weights(store, "ann", source)
    assert kept(store) == [] and len(parts(store)) == 1
    with store.read() as session:
        assert [each.complete for each in stored.list_weights(session, "ann")] == [False], "it can be seen, and removed"
    with pytest.raises(BadRequest, match="are not kept"):
        WeightsReader(store).of(job_with(store, weights.digest))
    assert keep_weights(store, "ann", source)
    assert asked == [0, 1, 1, 2]
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights


def test_what_a_killed_process_has_kept_stays_and_is_not_read_again(store: Store, tmp_path: Path) -> None:
    weights = read_weights(LONG)
    (tmp_path / "w.safetensors").write_bytes(LONG)
    url = store.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", KEEPS_TWO_PARTS, url, str(tmp_path / "w.safetensors")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    assert (said, process.returncode) == ("asked for the third part\n", -signal.SIGKILL)
    assert kept(store) == [] and parts(store) == [weights.elements[:8], weights.elements[8:16]]
    whole = source_of(weights)
    asked: list[int] = []

    def part(position: int) -> bytes:
        asked.append(position)
        return whole.part(position)

    assert keep_weights(store, "ann", replace(whole, part=part))
    assert asked == [2, 3, 4]
    assert kept(store) == [weights.digest] and b"".join(parts(store)) == weights.elements
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights, "their digest is right"


def test_two_who_send_the_same_at_once_keep_it_once(store: Store) -> None:
    weights = read_weights(FILE)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: keep_weights(store, "ann", source_of(weights)), range(4))) >= 1
    assert len(parts(store)) == 3
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights


def test_weights_that_are_removed_while_they_are_sent_are_not_half_kept(store: Store) -> None:
    whole = source_of(read_weights(FILE))

    def part(position: int) -> bytes:
        if position == 1:
            remove(store, whole.digest)
        return whole.part(position)

    with pytest.raises(Conflict, match="were removed while they were sent; send them again"):
        keep_weights(store, "ann", WeightsSource(whole.tensors, whole.digest, whole.size_bytes, part))
    assert parts(store) == []


def test_weights_that_nobody_has_used_for_days_are_removed_when_others_are_kept(store: Store) -> None:
    unused, wanted = read_weights(FILE), read_weights(OTHER)
    for weights in (unused, wanted):
        keep_weights(store, "ann", source_of(weights))
    job_with(store, wanted.digest)
    age(store, KEPT - timedelta(hours=1))
    keep_weights(store, "bob", source_of(unused))
    assert sorted(kept(store)) == sorted([unused.digest, wanted.digest])
    age(store, KEPT + timedelta(hours=1))
    keep_weights(store, "cyd", source_of(unused))
    assert kept(store) == [wanted.digest], "a job that waits works with them"


def test_weights_whose_removal_was_interrupted_are_named_by_no_job_and_can_be_sent_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_PARTS_AT_ONCE", 1)
    weights = read_weights(FILE)
    keep_weights(store, "ann", source_of(weights))
    used_at = begin_removal(store, weights.digest)
    with store.write() as session:
        assert stored.remove_some(session, "ann", weights.digest, used_at=used_at), "there is more to remove"
    assert len(parts(store)) == 2
    with store.write() as session, pytest.raises(BadRequest, match="are not kept"):
        require_weights(session, "ann", weights.digest)
    assert keep_weights(store, "ann", source_of(weights))
    remove_weights(store, "ann", weights.digest, used_at=used_at)  # the removal goes on, and finds them in use again
    assert WeightsReader(store).of(job_with(store, weights.digest)) == weights
    remove(store, weights.digest)
    assert parts(store) == [] and kept(store) == []


def test_old_weights_that_are_sent_again_are_not_stored_anew(store: Store) -> None:
    weights = read_weights(FILE)
    keep_weights(store, "ann", source_of(weights))
    age(store, KEPT + timedelta(hours=1))
    assert not keep_weights(store, "ann", source_of(weights))


def test_weights_that_a_job_names_while_they_are_to_be_removed_stay(store: Store) -> None:
    weights = read_weights(FILE)
    keep_weights(store, "bob", source_of(weights))
    age(store, KEPT + timedelta(hours=1))
    with ThreadPoolExecutor(1) as pool:
        with store.write() as session:
            require_weights(session, "bob", weights.digest)
            sends = pool.submit(keep_weights, store, "ann", source_of(read_weights(OTHER)))
            time.sleep(1)  # it waits by then, for the row or for its turn to write
        assert sends.result(30)
    assert kept(store, "bob") == [weights.digest]


def test_a_run_that_an_older_version_began_with_a_file_is_not_resumed_without_weights(store: Store) -> None:
    job = job_with(store, "")
    with store.write() as session:
        jobs.update_options(session, job.id, weights=None, state="/w.safetensors")
    with store.read() as session, pytest.raises(BadRequest, match="begun by an older version"):
        WeightsReader(store).of(jobs.get_job(session, job.id))


def test_weights_are_used_when_a_job_reads_them(store: Store) -> None:
    weights = read_weights(FILE)
    keep_weights(store, "ann", source_of(weights))
    job, reader = job_with(store, weights.digest), WeightsReader(store)
    for _ in range(2):  # the second time from memory
        age(store, KEPT + timedelta(hours=1))
        reader.of(job)
        with store.read() as session:
            found = stored.find_weights(session, "ann", weights.digest)
        assert found is not None and found.used_at > utc_now() - timedelta(minutes=5)


def test_weights_that_were_damaged_in_the_store_are_not_given_to_a_job(store: Store) -> None:
    weights = read_weights(FILE)
    keep_weights(store, "ann", source_of(weights))
    with store.write() as session:
        session.execute(update(WeightsPartRow).where(WeightsPartRow.position == 1).values(data=b"????????"))
    with pytest.raises(BadRequest, match="are damaged in the store"):
        WeightsReader(store).of(job_with(store, weights.digest))


def test_a_job_that_names_none_has_none(store: Store) -> None:
    job = job_with(store, "")
    with store.write() as session:
        jobs.update_options(session, job.id, weights=None)
    with store.read() as session:
        assert WeightsReader(store).of(jobs.get_job(session, job.id)) is None


def test_a_file_of_this_machine_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(OTHER)
    assert read_state(path) == Weights(read_weights(OTHER).rows, b"efgh")

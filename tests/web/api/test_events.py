"""Events as they happen, over a real server: nothing missed, nothing twice, and an end."""

import asyncio
import json
import threading
import time

import httpx
import pytest

from db.evaluations import results
from db.jobs import job_queue, workers
from db.jobs.batches import add_batch
from db.jobs.jobs import set_spent
from db.records import JobStatus
from db.tables import JobRow
from service.jobs.liveness import this_process
from tests.support.web_application import add_done_job, events_of, get, listening, opened
from web import broadcast
from web.api import events as events_api

API = "/api/v1"


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path) as web:
        yield web


@pytest.fixture
def address(web):
    with listening(web) as address:
        yield address


def add_waiting_job(web):
    from service.jobs.persistence import save_task
    from tasks.load import task_from_source
    from tests.support.web_application import OP

    with web.store.write() as session:
        return job_queue.add_queued_job(
            session,
            task_id=save_task(session, task_from_source(OP, name="relu")),
            kind="optimize",
            platform="cpu",
            model="builtin/compiler",
            strategy="judge",
            options={},
            user="local",
        )


def add_event(web, job_id, number, **data):
    with web.store.write() as session:
        results.add_event(session, job_id, "round_started", number, data)


def set_status(web, job_id, status):
    with web.store.write() as session:
        session.get(JobRow, job_id).status = status.value


def follow(address, job_id, seen, after=0):
    with httpx.stream("GET", f"{address}{API}/jobs/{job_id}/events?after={after}", trust_env=False) as response:
        seen.append("".join(response.iter_text()))


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_polled(web, holds=lambda state: True):
    """Wait until the broadcaster has read a state for which `holds`, and told it."""
    channels = web.app.state.broadcaster._channels
    wait_for(lambda: any(each.state is not None and holds(each.state) for each in list(channels.values())))


def rounds(text):
    return [json.loads(data)["round"] for name, _, data in events_of(text) if name == "message"]


def test_a_job_that_has_ended_is_told_whole_and_the_stream_ends(web, address):
    job = add_done_job(web.store)
    response = get(address, f"{API}/jobs/{job}/events")
    told = events_of(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [json.loads(data)["kind"] for name, _, data in told if name == "message"] == [
        "job_started",
        "round_started",
        "candidate",
        "ended",
    ]
    assert told[-1][0] == "end"
    assert json.loads(told[-1][2])["status"] == "done"


@pytest.mark.parametrize("way", ["header", "query"])
def test_it_goes_on_where_it_broke_off(web, address, way):
    job = add_done_job(web.store)
    ids = [int(number) for name, number, _ in events_of(get(address, f"{API}/jobs/{job}/events").text) if number]
    given = {"headers": {"Last-Event-ID": str(ids[1])}} if way == "header" else {"params": {"after": ids[1]}}
    rest = events_of(get(address, f"{API}/jobs/{job}/events", **given).text)
    assert [int(number) for _, number, _ in rest if number] == ids[2:]
    assert rest[-1][0] == "end"


def test_a_last_event_id_beyond_all_does_not_hide_events_from_others(web, address):
    job = add_waiting_job(web)
    far, near = [], []
    threads = [
        threading.Thread(target=follow, args=(address, job, far, 2**40)),
        threading.Thread(target=follow, args=(address, job, near)),
    ]
    threads[0].start()
    wait_for(lambda: web.app.state.broadcaster.listeners == 1)
    threads[1].start()
    wait_for(lambda: web.app.state.broadcaster.listeners == 2)
    add_event(web, job, 1)
    set_status(web, job, JobStatus.DONE)
    for thread in threads:
        thread.join(10)
    assert rounds(near[0]) == [1]
    assert rounds(far[0]) == []


def test_a_poll_that_fails_is_logged_and_the_stream_goes_on(web, address, monkeypatch, caplog):
    job, seen, failed = add_waiting_job(web), [], threading.Event()
    poll = broadcast.Broadcaster._poll

    async def stumble(broadcaster):
        if not failed.is_set():
            failed.set()
            raise RuntimeError("nobody thought of this")
        await poll(broadcaster)

    thread = threading.Thread(target=follow, args=(address, job, seen))
    monkeypatch.setattr(broadcast.Broadcaster, "_poll", stumble)
    thread.start()
    assert failed.wait(10)
    add_event(web, job, 1)
    set_status(web, job, JobStatus.DONE)
    thread.join(10)
    assert rounds(seen[0]) == [1]
    assert "nobody thought of this" in caplog.text


@pytest.mark.parametrize("last", ["abc", "-1", "1" * 40, "1\x0b"])
def test_a_last_event_id_that_is_none_is_refused(web, last):
    job = add_done_job(web.store)
    with web.client() as client:
        assert client.get(f"{API}/jobs/{job}/events", headers={"Last-Event-ID": last}).status_code == 422


def test_events_of_a_job_that_is_not_there_are_a_404(address):
    assert get(address, f"{API}/jobs/77/events").status_code == 404


def test_many_listen_while_events_come_and_each_hears_all_once_in_order(web, address):
    job = add_waiting_job(web)
    for number in range(1, 4):
        add_event(web, job, number)
    seen = []
    threads = [threading.Thread(target=follow, args=(address, job, seen)) for _ in range(20)]
    for number, thread in enumerate(threads):
        thread.start()
        if number % 4 == 0:  # some come while events do
            add_event(web, job, 4 + number // 4)
    wait_for(lambda: web.app.state.broadcaster.listeners == 20)
    set_status(web, job, JobStatus.RUNNING)
    add_event(web, job, 9)
    time.sleep(broadcast.POLL_INTERVAL_S * 1.5)
    add_event(web, job, 10)
    set_status(web, job, JobStatus.DONE)
    for thread in threads:
        thread.join(20)
    assert len(seen) == 20
    for text in seen:
        assert rounds(text) == list(range(1, 11))
        assert events_of(text)[-1][0] == "end"
    wait_for(lambda: web.app.state.broadcaster.listeners == 0)


def test_states_are_told_when_they_change(web, address):
    job, seen = add_waiting_job(web), []
    thread = threading.Thread(target=follow, args=(address, job, seen))
    thread.start()
    wait_until_polled(web)
    set_status(web, job, JobStatus.RUNNING)
    wait_until_polled(web, lambda state: state.status == JobStatus.RUNNING.value)
    set_status(web, job, JobStatus.CANCELLED)
    thread.join(10)
    states = [json.loads(data)["status"] for name, _, data in events_of(seen[0]) if name == "status"]
    assert states == ["queued", "running", "cancelled"]


def test_a_listener_who_leaves_is_forgotten_with_the_next_sign_of_life(web, address, monkeypatch):
    monkeypatch.setattr(events_api, "KEEP_ALIVE_S", 0.2)
    job = add_waiting_job(web)
    with httpx.stream("GET", f"{address}{API}/jobs/{job}/events", trust_env=False) as response:
        texts = response.iter_text()  # kept: one that is thrown away closes the stream
        next(texts)
        wait_for(lambda: web.app.state.broadcaster.listeners == 1)
    wait_for(lambda: web.app.state.broadcaster.listeners == 0)


def test_silence_is_broken_by_comments_and_a_revoked_token_ends_the_stream(tmp_path, monkeypatch):
    from service.submissions.access import revoke_token

    monkeypatch.setattr(events_api, "KEEP_ALIVE_S", 0.2)
    with opened(tmp_path, login=True) as web, listening(web) as address:
        headers = {"Authorization": f"Bearer {web.token()}"}
        job = add_waiting_job(web)
        with httpx.stream("GET", f"{address}{API}/jobs/{job}/events", headers=headers, trust_env=False) as response:
            lines = response.iter_lines()
            assert any(line.startswith(": still here") for line in lines)
            revoke_token(web.store, 1)
            rest = list(lines)
        assert "event: end" not in rest


def test_a_revoked_token_ends_its_streams_at_once_however_much_is_told(tmp_path):
    from service.submissions.access import revoke_token

    with opened(tmp_path, login=True) as web, listening(web) as address:
        headers = {"Authorization": f"Bearer {web.token()}"}
        other = {"Authorization": f"Bearer {web.token(user='bob')}"}
        job, ended = add_waiting_job(web), []

        def listen(path, headers, name):
            with httpx.stream("GET", f"{address}{API}{path}", headers=headers, trust_env=False) as response:
                "".join(response.iter_text())
                ended.append(name)

        threads = [
            threading.Thread(target=listen, args=(f"/jobs/{job}/events", headers, "job")),
            threading.Thread(target=listen, args=("/devices/events", headers, "devices")),
            threading.Thread(target=listen, args=(f"/jobs/{job}/events", other, "of another")),
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: web.app.state.broadcaster.listeners == 3)
        wait_until_polled(web)
        revoke_token(web.store, 1)
        for number in range(4):  # a stream that is never silent
            add_event(web, job, number)
            time.sleep(0.5)
        assert sorted(ended) == ["devices", "job"]
        set_status(web, job, JobStatus.DONE)
        for thread in threads:
            thread.join(10)
        assert ended[-1] == "of another"


def test_long_texts_are_shortened(web, address):
    job = add_done_job(web.store, change="x" * 100_000)
    assert len(get(address, f"{API}/jobs/{job}/events").text) < 20_000


def test_what_a_candidate_says_cannot_break_out_of_its_event(web, address):
    job = add_done_job(web.store, change="a\n\nevent: end\ndata: {}\n\n\r\r\u2028<script>")
    told = events_of(get(address, f"{API}/jobs/{job}/events").text)
    assert [name for name, _, _ in told].count("end") == 1
    changes = [json.loads(data)["data"].get("change") for name, _, data in told if name == "message"]
    assert "a\n\nevent: end\ndata: {}\n\n\r\r\u2028<script>" in changes


def test_when_the_server_ends_so_do_its_streams(tmp_path):
    with opened(tmp_path) as web:
        job, seen = add_waiting_job(web), []
        with listening(web) as address:
            thread = threading.Thread(target=follow, args=(address, job, seen))
            thread.start()
            wait_for(lambda: web.app.state.broadcaster.listeners == 1)
            object.__setattr__(web.app.state.dependencies, "stopping", lambda: True)
            thread.join(5)
            assert not thread.is_alive()
        assert "event: end" not in seen[0]


def test_a_listener_who_takes_nothing_is_cut_off():
    async def overflow():
        channel = broadcast._Channel(0)
        queue = asyncio.Queue(2)
        channel.listeners.add(queue)
        for _ in range(3):
            channel.send("event")
        return queue.get_nowait(), queue.empty(), channel.listeners

    assert asyncio.run(overflow()) == (None, True, set())


def test_no_more_listen_than_the_server_can_bear(web, address, monkeypatch):
    monkeypatch.setattr(broadcast, "MAX_LISTENERS", 0)
    response = get(address, f"{API}/jobs/{add_done_job(web.store)}/events")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "30"


def test_one_user_does_not_take_the_streams_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(broadcast, "MAX_LISTENERS_PER_USER", 1)
    monkeypatch.setattr(events_api, "KEEP_ALIVE_S", 0.1)
    with opened(tmp_path, login=True) as web, listening(web) as address:
        url = f"{address}{API}/jobs/{add_waiting_job(web)}/events"
        ada, again, bob = ({"Authorization": f"Bearer {web.token('viewer', user)}"} for user in ("ada", "ada", "bob"))
        with httpx.stream("GET", url, headers=ada, trust_env=False):
            wait_for(lambda: web.app.state.broadcaster.listeners == 1)
            refused = httpx.get(url, headers=again, trust_env=False)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            with httpx.stream("GET", url, headers=bob, trust_env=False) as other:
                assert other.status_code == 200
        wait_for(lambda: web.app.state.broadcaster.listeners == 0)
        with httpx.stream("GET", url, headers=again, trust_env=False) as once_more:
            assert once_more.status_code == 200


# Batches and devices


def add_batch_of(web, *jobs):
    with web.store.write() as session:
        batch = add_batch(session, name="b", user="local", spec={}, budget_usd=None)
        for job in jobs:
            session.get_one(JobRow, job).batch_id = batch
    return batch


def follow_path(address, path, seen):
    with httpx.stream("GET", f"{address}{API}{path}", trust_env=False) as response:
        seen.append("".join(response.iter_text()))


def states_of(text):
    return [(name, json.loads(data)) for name, _, data in events_of(text)]


def test_a_batch_is_told_at_once_at_each_change_and_to_its_end(web, address):
    jobs = [add_waiting_job(web), add_waiting_job(web)]
    batch, seen = add_batch_of(web, *jobs), []
    thread = threading.Thread(target=follow_path, args=(address, f"/batches/{batch}/events", seen))
    thread.start()
    for job, cost, queued_now in zip(jobs, (0.25, 0.5), (2, 1), strict=True):
        wait_until_polled(web, lambda state, left=queued_now: state.counts.get("queued") == left)
        with web.store.write() as session:
            set_spent(session, job, cost_usd=cost, tokens=1)
            session.get_one(JobRow, job).status = JobStatus.DONE.value
    thread.join(10)
    told = states_of(seen[0])
    assert [name for name, _ in told] == ["status", "status", "status", "end"]
    assert [state["counts"] for _, state in told] == [
        {"queued": 2},
        {"done": 1, "queued": 1},
        {"done": 2},
        {"done": 2},
    ]
    assert [state["cost_usd"] for _, state in told] == [0.0, 0.25, 0.75, 0.75]


def test_an_ended_batch_says_how_it_stands_and_ends(web, address):
    batch = add_batch_of(web, add_done_job(web.store))
    told = states_of(get(address, f"{API}/batches/{batch}/events").text)
    assert [name for name, _ in told] == ["status", "end"]
    assert (told[0][1]["counts"], told[0][1]["solved"]) == ({"done": 1}, 1)


def test_a_batch_that_is_not_there_is_a_404(address):
    assert get(address, f"{API}/batches/77/events").status_code == 404


def test_batches_and_jobs_are_watched_side_by_side_and_not_confused(web, address):
    job = add_waiting_job(web)
    other = add_waiting_job(web)
    batch = add_batch_of(web, other)
    assert batch == job  # both have the number 1
    of_batch, of_job = [], []
    threads = [
        threading.Thread(target=follow_path, args=(address, f"/batches/{batch}/events", of_batch)),
        threading.Thread(target=follow, args=(address, job, of_job)),
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: web.app.state.broadcaster.listeners == 2)
    set_status(web, job, JobStatus.DONE)
    threads[1].join(10)
    assert events_of(of_job[0])[-1][0] == "end"
    assert threads[0].is_alive()
    set_status(web, other, JobStatus.CANCELLED)
    threads[0].join(10)
    assert states_of(of_batch[0])[-1] == ("end", states_of(of_batch[0])[-2][1])


def test_devices_are_told_when_a_worker_comes_works_or_is_lost(web, address):
    told = []

    def listen():
        with httpx.stream("GET", f"{address}{API}/devices/events", trust_env=False) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: ")))
                if len(told) == 4:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    wait_for(lambda: len(told) == 1)
    with web.store.write() as session:
        workers.add_worker(
            session, "w", this_process(), platform="cpu", slot=0, device="d", kind="k", sandbox="docker", version="1"
        )
    wait_for(lambda: len(told) == 2)
    job = add_waiting_job(web)
    with web.store.write() as session:
        job_queue.take_job(session, job, 1, this_process(), worker_id="w", sandbox="docker")
    wait_for(lambda: len(told) == 3)
    with web.store.write() as session:
        workers.set_lost(session, "w")
    thread.join(10)
    assert [[(each["state"], each["job_ids"]) for each in state["workers"]] for state in told] == [
        [],
        [("alive", [])],
        [("alive", [job])],
        [("lost", [job])],
    ]
    assert [platform["alive"] for state in told for platform in state["platforms"] if platform["name"] == "cpu"] == [
        0,
        1,
        1,
        0,
    ]


def test_when_the_server_ends_so_do_the_streams_of_devices(tmp_path):
    with opened(tmp_path) as web, listening(web) as address:
        seen = []
        thread = threading.Thread(target=follow_path, args=(address, "/devices/events", seen))
        thread.start()
        wait_until_polled(web)
        object.__setattr__(web.app.state.dependencies, "stopping", lambda: True)
        thread.join(5)
        assert not thread.is_alive()
    assert [name for name, _ in states_of(seen[0])] == ["status"]


def test_who_may_not_look_hears_nothing_of_batches_and_devices(tmp_path):
    with opened(tmp_path, login=True) as web, listening(web) as address:
        for path in ("/devices/events", "/batches/1/events"):
            assert get(address, f"{API}{path}").status_code == 401

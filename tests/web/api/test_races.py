"""Requests that arrive at the same moment, on both databases: one job for one key, and no more than a quota allows."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from db.locks import lock_job, lock_name
from db.records import JobStatus
from db.tables import JobRow
from service.settings import load_settings
from tests.support.web_application import OP, Web, add_done_job, events_of

API = "/api/v1"
AT_ONCE = 8


@pytest.fixture
def web(store):
    return Web(store, load_settings(), login=True)


def all_at_once(send):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(send) for _ in range(AT_ONCE)]]


def test_one_key_makes_one_job_however_often_it_is_sent_at_once(web):
    token = web.token("submitter")
    headers = {"Idempotency-Key": "same"}
    answers = all_at_once(lambda: web.client(token).post(f"{API}/jobs", json={"source": OP}, headers=headers))
    assert sorted(answer.status_code for answer in answers) == [200] * (AT_ONCE - 1) + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(web.client(token).get(f"{API}/jobs").json()["jobs"]) == 1


def test_a_quota_holds_when_jobs_come_at_once(web):
    token = web.token("submitter", max_jobs=3)
    answers = all_at_once(lambda: web.client(token).post(f"{API}/jobs", json={"source": OP}))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [403] * (AT_ONCE - 3)


def test_a_quota_is_the_users_and_holds_for_his_tokens_together(web):
    tokens = [web.token("submitter", "ada", max_jobs=3) for _ in range(AT_ONCE)]
    answers = all_at_once(lambda: web.client(tokens.pop()).post(f"{API}/jobs", json={"source": OP}))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [403] * (AT_ONCE - 3)


def test_a_quota_holds_when_batches_are_resumed_at_once(web):
    tokens = [web.token("submitter", "ada", max_jobs=3) for _ in range(AT_ONCE)]
    client, batches = web.client(tokens[0]), []
    for _ in range(AT_ONCE):
        body = {"tasks": ["starter/rmsnorm_gelu"], "samples": 2}
        batches.append(client.post(f"{API}/batches", json=body).json()["id"])
        assert client.post(f"{API}/batches/{batches[-1]}/cancel").status_code == 200
    answers = all_at_once(lambda: web.client(tokens.pop()).post(f"{API}/batches/{batches.pop()}/resume"))
    assert sorted(answer.status_code for answer in answers) == [200] + [403] * (AT_ONCE - 1)
    assert len(client.get(f"{API}/jobs?status=queued").json()["jobs"]) == 2


def test_a_job_that_is_resumed_takes_the_quota_before_the_job_as_a_batch_does(web):
    job = add_done_job(web.store)
    with web.store.write() as session:
        row = session.get_one(JobRow, job)
        row.user, row.status = "ada", JobStatus.INTERRUPTED.value
    client = web.client(web.token("submitter", "ada", max_jobs=3))
    with ThreadPoolExecutor(1) as pool:
        with web.store.write() as session:
            lock_name(session, "quota", "ada")
            resumed = pool.submit(client.post, f"{API}/jobs/{job}/resume")
            time.sleep(0.5)  # it waits for the quota
            lock_job(session, job)
        assert resumed.result().status_code == 200


def test_everything_is_read_on_both_databases(web):
    job = add_done_job(web.store)
    client = web.client(web.token("operator"))
    for path in (
        *("/me", "/tasks", "/tasks?origin=stored", "/tasks/local/relu", "/jobs?task=local/relu", f"/jobs/{job}"),
        *(f"/jobs/{job}/export", f"/jobs/{job}/report", f"/jobs/{job}/candidates", f"/evaluations/evaluation-{job}-1"),
        *("/leaderboard?sort=roofline", "/leaderboard.csv", "/batches", "/devices", "/health/ready"),
    ):
        assert client.get(API + path).status_code == 200, path
    assert events_of(client.get(f"{API}/jobs/{job}/events").text)[-1][0] == "end"
    assert 'kernelwright_jobs{status="done"} 1.0' in client.get("/metrics").text

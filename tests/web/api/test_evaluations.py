"""Evaluations that people ask the API for: queued with the candidate that they give, which nothing here looks into."""

import pytest

from db.evaluations.results import list_candidate_sources
from service.evaluate import MAX_CANDIDATE_BYTES
from tasks.outcomes import candidate_hash
from tests.support.web_application import CANDIDATE, OP, opened

API = "/api/v1"
HOSTILE = "import pathlib\npathlib.Path({path!r}).write_text('run')\n"


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path) as web:
        yield web


@pytest.fixture
def client(web):
    with web.client() as client:
        yield client


def ask(client, key=None, **body):
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"{API}/evaluations", json={"source": OP, "candidate": CANDIDATE, **body}, headers=headers)


def refused(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()["detail"]


def test_a_given_candidate_waits_for_a_worker_with_what_was_asked_for(client, web):
    response = ask(client, name="relu", profile=True, cold=True, tolerance="kernelbench")
    job = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"{API}/jobs/{job['id']}"
    assert (job["kind"], job["status"], job["model"], job["platform"]) == ("evaluate", "queued", None, "cpu")
    assert job["task"]["ref"] == "local/relu"
    digest = candidate_hash(CANDIDATE)
    asked = {"candidate_hash": digest, "ref": "local/relu", "profile": True, "cold": True}
    assert job["options"] == {**asked, "tolerance": "kernelbench", "baselines": "eager,compile"}
    with web.store.read() as session:
        assert list_candidate_sources(session, job["id"]) == {digest: CANDIDATE}


def test_inputs_of_a_shape_group_are_timed_where_the_op_has_any(client):
    assert "has no get_input_groups()" in refused(ask(client, name="relu", shape_group=1), 422)
    source = OP + "\n\ndef get_input_groups():\n    return [get_inputs()]\n"
    job = ask(client, source=source, name="relu", shape_group=0).json()
    assert job["options"]["shape_group"] == 0


def test_a_sanitizer_may_be_asked_for_where_candidates_may_run_on_a_gpu(client):
    assert "on platforms cuda and triton" in refused(ask(client, sanitize=True), 422)
    job = ask(client, platform="cuda", sanitize=True).json()
    assert (job["options"]["sanitize"], job["options"]["profile"]) == (True, True)
    assert "sanitize" not in ask(client, platform="cuda").json()["options"]


def test_the_op_may_be_one_of_a_suite(client):
    body = {"task": "starter/gelu_tanh", "candidate": CANDIDATE}
    assert client.post(f"{API}/evaluations", json=body).json()["task"]["ref"] == "starter/gelu_tanh"
    assert "no such task" in refused(client.post(f"{API}/evaluations", json={**body, "task": "starter/no"}), 422)
    assert "no such task" in refused(client.post(f"{API}/evaluations", json={**body, "task": "../op.py"}), 422)


def test_nothing_of_op_or_candidate_is_run_by_the_server(client, tmp_path):
    mark = tmp_path / "run"
    hostile = HOSTILE.format(path=str(mark))
    assert ask(client, source=OP + hostile, candidate=hostile + CANDIDATE).status_code in (201, 422)
    assert ask(client, candidate=hostile + CANDIDATE).status_code == 201
    assert ask(client, candidate="this is no Python at all").status_code == 201  # which the referee will say
    assert not mark.exists()


def test_what_no_database_takes_is_replaced_and_the_candidate_is_found_by_what_was_kept(client, web):
    job = ask(client, candidate="# \x00\n" + CANDIDATE).json()
    with web.store.read() as session:
        ((digest, source),) = list_candidate_sources(session, job["id"]).items()
    assert digest == job["options"]["candidate_hash"] == candidate_hash(source)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"platform": "abacus"}, "platform 'abacus' is unknown"),
        ({"tolerance": "lenient"}, "tolerance"),
        ({"candidate": "é" * (MAX_CANDIDATE_BYTES // 2 + 1)}, "larger than 1 MiB"),
        ({"candidate": "x" * (MAX_CANDIDATE_BYTES + 1)}, "candidate"),
        ({"source": "x = 1"}, "get_inputs"),
        ({"profile": 1}, "profile"),
        ({"sandbox": "process"}, "sandbox"),
        ({"image": "mine"}, "image"),
        ({"task": "starter/gelu_tanh"}, "source"),
        ({"candidate": None}, "candidate"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_by_name(client, body, words):
    assert words in refused(ask(client, **body), 422)
    assert client.get(f"{API}/jobs").json()["jobs"] == []


def test_a_body_beyond_all_bounds_is_not_read(client):
    assert "larger than 2048 KiB" in refused(ask(client, candidate="x" * (3 * 1024 * 1024)), 413)


def test_the_same_key_and_request_queue_one_evaluation(client):
    first, again = ask(client, key="k1"), ask(client, key="k1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert "another request" in refused(ask(client, key="k1", cold=True), 409)
    assert "another request" in refused(ask(client, key="k1", candidate=CANDIDATE + "\n"), 409)


def test_a_token_bounds_who_may_ask_and_for_how_many_at_once(tmp_path):
    with opened(tmp_path, login=True) as web, web.client(web.token("viewer", "eve")) as viewer:
        assert "submitter" in refused(ask(viewer), 403)
        with web.client(web.token("submitter", "bob", max_jobs=1)) as client:
            assert ask(client).json()["user"] == "bob"
            assert "1 jobs at once" in refused(ask(client), 403)
        with web.client() as nobody:
            assert ask(nobody).status_code == 401

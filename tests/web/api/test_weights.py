"""Weights through the API: sent as a file, kept for their user within a limit, and named by runs and evaluations."""

import contextlib
import errno
import http.client
import os
import time
from urllib.parse import urlsplit

import pytest

from db.jobs import jobs
from tasks.weights_file import MAX_STATE_BYTES, read_weights
from tests.support.web_application import CANDIDATE, OP, listening, opened
from tests.support.weights import state_file
from web.api.weights import UPLOADS_AT_ONCE

API = "/api/v1"
FILE = state_file({"weight": ("F32", [2], b"abcdefgh")})
DIGEST = read_weights(FILE).digest
MIB = state_file({"weight": ("U8", [1 << 20], bytes(1 << 20))})


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path, login=True, weights_mb=1) as opened_web:
        yield opened_web


@pytest.fixture
def ann(web):
    with web.client(web.token("submitter", "ann")) as client:
        yield client


def send(client, data=FILE, **headers):
    return client.put(f"{API}/weights", content=data, headers=headers)


def detail(response, status):
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    return response.json()["detail"]


def test_weights_are_sent_once_listed_and_removed(ann):
    assert ann.get(f"{API}/weights/{DIGEST}").status_code == 404
    first, again = send(ann), send(ann)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["digest"], first.json()["size_bytes"]) == (DIGEST, 8)
    assert [each["digest"] for each in ann.get(f"{API}/weights").json()["weights"]] == [DIGEST]
    assert ann.get(f"{API}/weights/{DIGEST}").json() == ann.get(f"{API}/weights").json()["weights"][0]
    assert ann.delete(f"{API}/weights/{DIGEST}").status_code == 204
    assert "none are kept for ann" in detail(ann.delete(f"{API}/weights/{DIGEST}"), 404)
    assert ann.get(f"{API}/weights").json()["weights"] == []


def test_a_run_and_an_evaluation_name_the_weights_that_they_work_with(ann, web):
    body = {"source": OP, "name": "net", "weights": DIGEST}
    assert "are not kept for ann; send the file first" in detail(ann.post(f"{API}/models", json=body), 422)
    send(ann)
    run = ann.post(f"{API}/models", json=body).json()
    assert run["options"]["weights"] == DIGEST
    job = ann.post(f"{API}/evaluations", json={**body, "candidate": CANDIDATE}).json()
    with web.store.read() as session:
        assert [jobs.get_job(session, each["id"]).options["weights"] for each in (run, job)] == [DIGEST, DIGEST]
    assert "a job that waits or runs works with them" in detail(ann.delete(f"{API}/weights/{DIGEST}"), 409)


def test_a_batch_names_weights_by_model(ann, web):
    body = {"tasks": ["starter/rmsnorm_gelu"], "whole_models": True, "weights": {"starter/rmsnorm_gelu": DIGEST}}
    assert "are not kept for ann" in detail(ann.post(f"{API}/batches", json=body), 422)
    send(ann)
    batch = ann.post(f"{API}/batches", json=body).json()
    assert batch["spec"]["weights"] == body["weights"]
    with web.store.read() as session:
        assert [job.options["weights"] for job in jobs.list_jobs(session, batch_id=batch["id"])] == [DIGEST]
    assert "are for whole models" in detail(ann.post(f"{API}/batches", json={**body, "whole_models": False}), 422)
    body["weights"] = {"starter/other": DIGEST}
    assert "starter/other is not among tasks" in detail(ann.post(f"{API}/batches", json=body), 422)
    body["weights"] = {"starter/rmsnorm_gelu": "/etc/passwd"}
    assert ann.post(f"{API}/batches", json=body).status_code == 422
    assert ann.post(f"{API}/batches/{batch['id']}/cancel").status_code == 200
    assert ann.delete(f"{API}/weights/{DIGEST}").status_code == 204
    assert "are not kept for ann" in detail(ann.post(f"{API}/batches/{batch['id']}/resume"), 422)
    send(ann)
    assert ann.post(f"{API}/batches/{batch['id']}/resume").status_code == 200


def test_each_user_has_weights_of_ones_own(ann, web):
    send(ann)
    with web.client(web.token("operator", "bob")) as bob:
        assert bob.get(f"{API}/weights").json()["weights"] == []
        assert "none are kept for bob" in detail(bob.get(f"{API}/weights/{DIGEST}"), 404)
        assert "none are kept for bob" in detail(bob.delete(f"{API}/weights/{DIGEST}"), 404)
        body = {"source": OP, "weights": DIGEST}
        assert "are not kept for bob" in detail(bob.post(f"{API}/models", json=body), 422)
        assert send(bob).status_code == 201


def test_only_who_may_submit_sends_weights(web):
    with web.client(web.token("viewer", "eve")) as eve:
        assert "submitter" in detail(send(eve), 403)
        assert "submitter" in detail(eve.delete(f"{API}/weights/{DIGEST}"), 403)
        assert eve.get(f"{API}/weights").json()["weights"] == []
    with web.client() as nobody:
        assert send(nobody).status_code == 401


def test_what_is_no_file_with_weights_is_refused_and_not_kept(ann):
    assert "cannot be read as a safetensors file" in detail(send(ann, b"PK\x03\x04" * 10), 422)
    assert "it is shorter than 8 bytes" in detail(send(ann, b""), 422)
    assert "without compression" in detail(send(ann, FILE, **{"Content-Encoding": "gzip"}), 415)
    assert "Content-Length" in detail(send(ann, iter([FILE])), 411)
    assert ann.get(f"{API}/weights").json()["weights"] == []


def test_a_users_weights_have_a_limit(ann, web):
    assert "1 MiB of weights are kept for one user" in detail(send(ann, MIB + b"x"), 403)
    small = state_file({"weight": ("U8", [700_000], bytes(700_000))})
    assert send(ann, small).status_code == 201
    assert send(ann, small).status_code == 200, "what is kept already needs no room"
    other = state_file({"weight": ("U8", [700_000], b"1" * 700_000)})
    assert "remove others (GET and DELETE /api/v1/weights)" in detail(send(ann, other), 403)
    with web.client(web.token("submitter", "bob")) as bob:
        assert send(bob, other).status_code == 201, "another user's do not count"


def test_files_of_names_alone_count_as_well(ann):
    for number in range(20):
        sent = send(ann, state_file({f"none{number}": ("F32", [0], b"")}))
        if sent.status_code != 201:
            break
    assert "1 MiB of weights are kept for one user" in detail(sent, 403)
    assert len(ann.get(f"{API}/weights").json()["weights"]) < 16


def test_a_candidate_that_was_held_to_weights_is_held_to_them_again(ann, web):
    send(ann)
    body = {"source": OP, "name": "net", "weights": DIGEST, "candidate": CANDIDATE}
    job = ann.post(f"{API}/evaluations", json=body).json()
    assert job["options"]["weights"] == DIGEST
    path = f"{API}/jobs/{job['id']}/candidates/{job['options']['candidate_hash']}/evaluations"
    assert ann.post(path).json()["options"]["weights"] == DIGEST
    with web.client(web.token("operator", "bob")) as bob:
        assert "are not kept for bob" in detail(bob.post(path), 422)


def test_no_more_than_a_few_files_are_taken_at_once_and_one_from_each_user(ann, web):
    uploads = web.app.state.uploads
    with uploads.taken("ann"):
        assert "a file of yours is being sent" in detail(send(ann), 429)
    with contextlib.ExitStack() as stack:
        for number in range(UPLOADS_AT_ONCE):
            stack.enter_context(uploads.taken(f"user{number}"))
        refused = send(ann)
        assert "files are being sent; try again in a minute" in detail(refused, 429)
        assert refused.headers["retry-after"] == "60"
    assert send(ann).status_code == 201
    assert send(ann, b"no file").status_code == 422
    assert send(ann).status_code == 200, "a refused one gives its place back"


def test_a_disk_without_room_is_not_the_requests_fault(ann, monkeypatch):
    def full(**given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("web.api.weights.tempfile.TemporaryFile", full)
    assert "try again later" in detail(send(ann), 503)


def begun(address, token, **headers):
    """A connection on which the head of a request was sent as it is."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.putrequest("PUT", f"{API}/weights")
    for name, value in {"Authorization": f"Bearer {token}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection


def request(address, token, body, **headers):
    """The response to a request as it is."""
    connection = begun(address, token, **headers)
    connection.send(body)
    return connection.getresponse()


def test_a_length_that_is_not_the_files_is_refused(web, monkeypatch):
    monkeypatch.setattr("web.security.request_body.BODY_TIMEOUT_S", 1.0)
    token = web.token("submitter", "ann")
    with listening(web) as address:
        huge = request(address, token, b"", **{"Content-Length": str(MAX_STATE_BYTES + 1)})
        assert huge.status == 413
        late = request(address, token, FILE[:-1], **{"Content-Length": str(len(FILE))})
        assert (late.status, b"arrives too slowly" in late.read()) == (408, True)
        monkeypatch.setattr("web.security.request_body.SLOWEST_BYTES_A_S", 1 << 30)
        trickling = begun(address, token, **{"Content-Length": str(1 << 20)})
        for _ in range(8):
            with contextlib.suppress(OSError):  # refused by then
                trickling.send(b"x")
            time.sleep(0.25)
        assert trickling.getresponse().status == 408, "one byte now and then does not hold a place"
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(FILE), FILE) for _ in range(3)) + b"0\r\n\r\n"
        both = {"Content-Length": str(len(FILE)), "Transfer-Encoding": "chunked"}
        assert request(address, token, chunked, **both).status == 400

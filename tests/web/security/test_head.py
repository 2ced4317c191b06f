"""HEAD is answered wherever GET is, as monitors and link checkers ask."""

import logging
import time

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from tests.support import seeded_store
from tests.support.web_application import HASHES, add_done_job, listening, opened

USUAL = {"job_id": "1", "run_id": "2", "batch_id": "1", "candidate_hash": HASHES[0], "suite": "user", "name": "relu",
         "evaluation_id": "evaluation-1-1", "digest": "0" * 64}  # fmt: skip


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path) as web:
        add_done_job(web.store)
        seeded_store.model_run(seeded_store.Seeded(web.store), "net")
        yield web


def test_every_address_that_answers_get_answers_head_with_the_same_status_and_headers(web):
    client, asked = web.client(), 0
    for route in iter_route_contexts(web.app.routes):
        if "GET" not in route.methods or route.path.endswith("/devices/events"):  # which does not end by itself
            continue
        path = route.path
        for name, value in USUAL.items():
            path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
        got, head = client.get(path), client.head(path)
        assert head.status_code == got.status_code, path
        assert head.content == b"", path
        changing = ("x-request-id", "date", "content-length") if path == "/metrics" else ("x-request-id", "date")
        left = [{name: value for name, value in answer.headers.items() if name not in changing}
                for answer in (head, got)]  # fmt: skip
        assert left[0] == left[1], path
        asked += 1
    assert asked > 40


def test_head_of_an_endless_stream_ends_and_leaves_no_listener(web):
    with listening(web) as address:
        before = time.monotonic()
        answer = httpx.head(f"{address}/api/v1/devices/events", trust_env=False)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert httpx.head(address, trust_env=False).status_code == 200
        assert time.monotonic() - before < 5
        assert web.app.state.broadcaster.listeners == 0


def test_head_where_there_is_no_get_names_what_there_is(web):
    answer = web.client().head("/api/v1/jobs/1/cancel")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    other = web.client().delete("/api/v1/jobs/1")
    assert other.headers["allow"] == "GET, HEAD"


def test_head_is_logged_as_head_with_its_route(web, caplog):
    with caplog.at_level(logging.INFO, logger="web"):
        web.client().head("/jobs/1")
    assert "HEAD /jobs/1 200" in caplog.text
    assert 'method="HEAD",route="/jobs/{job_id}"' in web.client().get("/metrics").text

"""What a job was told of earlier ones, on its page, in the API and on the form, hostile text included."""

from dataclasses import replace

import pytest

from agents.memory import Memory, MemoryMode
from db.evaluations import results
from db.jobs import jobs
from service.audit import retract_evaluation
from service.jobs.memory import ToldMemory
from tests.agents.test_memory import KERNEL, LESSON
from tests.support.web_application import HASHES, OP, add_done_job, opened


@pytest.fixture
def told(tmp_path):
    """An application with a job that was told of another one's kernel and of a lesson whose evaluations are gone."""
    with opened(tmp_path) as web:
        source = add_done_job(web.store, name="earlier")
        job_id = add_done_job(web.store)
        kernel = replace(
            KERNEL, task="suite/<b>bold</b>", evaluation_id=f"evaluation-{source}-1", model="<script>alert(1)</script>"
        )
        memory = Memory(MemoryMode.SIMILAR, (kernel,), (replace(LESSON, says="<i>stores</i>"),), "2026-11-28T10:00:00")
        with web.store.write() as session:
            results.add_event(session, job_id, "memory", 0, memory.to_json())
            jobs.update_options(session, job_id, memory="similar")
        yield web, job_id, source, memory


def test_the_page_names_each_kernel_and_lesson_with_links_to_what_it_rests_on(told):
    web, job_id, source, _ = told
    text = web.client().get(f"/jobs/{job_id}").text
    assert "What earlier jobs had proven" in text and "Nothing of it is about this very op." in text
    assert f'href="/jobs/{source}/candidates/{HASHES[0]}"' in text
    assert "1.30 times as fast (1.20 to 1.40), faster in 3, slower in 0 of 3 jobs" in text
    assert text.count("gone") >= 2, "the evaluations of the lesson are no longer there"
    assert "<b>bold</b>" not in text and "<script>alert" not in text and "<i>stores</i>" not in text
    assert "retracted since" not in text
    assert "it is told of earlier jobs: 1 kernel, 1 lesson" in text


def test_what_was_retracted_since_is_marked(told):
    web, job_id, source, _ = told
    retract_evaluation(web.store, f"evaluation-{source}-1", actor="ada", reason="a broken fan")
    assert "retracted since" in web.client().get(f"/jobs/{job_id}").text
    assert web.client().get(f"/api/v1/jobs/{job_id}").json()["memory"]["retracted"] == [f"evaluation-{source}-1"]


def test_the_sources_of_the_kernels_are_given_to_nobody(told):
    web, job_id, source, memory = told
    (kernel,) = memory.kernels
    with web.store.write() as session:
        results.add_event(session, job_id, "memory", 0, {"kernels": "malformed"})
    for path in ("", "/events", "/transcript"):
        text = web.client().get(f"/api/v1/jobs/{job_id}{path}").text
        assert kernel.source not in text
        assert kernel.candidate_hash in text and f"evaluation-{source}-1" in text


def test_the_api_gives_it_as_it_was_told_and_a_client_reads_it_back(told):
    web, job_id, _, memory = told
    found = web.client().get(f"/api/v1/jobs/{job_id}").json()
    assert found["job"]["options"]["memory"] == "similar"
    kernels = tuple(replace(each, source="") for each in memory.kernels)
    assert ToldMemory.from_json(found["memory"]) == ToldMemory(replace(memory, kernels=kernels))


def test_a_job_that_was_told_nothing_says_so(tmp_path):
    with opened(tmp_path) as web:
        job_id = add_done_job(web.store)
        text = web.client().get(f"/jobs/{job_id}").text
        assert "What earlier jobs had proven" not in text
        memory = web.client().get(f"/api/v1/jobs/{job_id}").json()["memory"]
        assert (memory["kernels"], memory["lessons"], memory["mode"]) == ([], [], "off")


def test_requests_and_the_form_choose_what_a_job_is_told(tmp_path):
    with opened(tmp_path) as web:
        client = web.client()
        form = client.get("/submit").text
        assert "<option selected>similar</option>" in form
        for sent, stored in (({}, "similar"), ({"memory": "all"}, "all"), ({"memory": "off"}, "off")):
            job = client.post("/api/v1/jobs", json={"source": OP, "name": "relu", **sent}).json()
            assert job["options"]["memory"] == stored
            assert job["options"]["baselines"] == "eager,compile"
        refused = client.post("/api/v1/jobs", json={"source": OP, "name": "relu", "memory": "everything"})
        assert refused.status_code == 422 and "memory" in refused.text
        batch = client.post("/api/v1/batches", json={"tasks": ["starter/gelu_tanh"]}).json()
        jobs_of = client.get(f"/api/v1/batches/{batch['id']}").json()["figures"]["jobs"]
        assert [each["memory"] for each in jobs_of] == ["off"]


def test_requests_choose_what_kernels_are_timed_against(tmp_path):
    with opened(tmp_path) as web:
        client = web.client()
        asked = {"source": OP, "name": "relu", "baselines": "openvino,eager"}
        job = client.post("/api/v1/jobs", json=asked).json()
        assert job["options"]["baselines"] == "eager,openvino"
        for wrong in ("eager,fast", "", "eager;compile"):
            assert client.post("/api/v1/jobs", json={**asked, "baselines": wrong}).status_code == 422
        alone = client.post("/api/v1/jobs", json={**asked, "baselines": "compile"})
        assert alone.status_code == 422 and "eager must be among them" in alone.text
        batch = {"tasks": ["starter/gelu_tanh"], "job": {"baselines": "eager,onnxruntime"}}
        made = client.post("/api/v1/batches", json=batch).json()
        (shown,) = client.get(f"/api/v1/batches/{made['id']}").json()["figures"]["jobs"]
        assert shown["settings"]["baselines"] == "eager,onnxruntime"

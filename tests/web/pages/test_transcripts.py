"""What models said, and larger limits, over HTTP: pages and API, for whom they are, bounded, quick and without keys."""

import re
import time

import pytest

from agents.protocols import Event
from db.jobs import batches, jobs
from db.records import JobStatus
from db.tables import JobRow
from tests.support import seeded_store
from tests.support.web_application import opened

API = "/api/v1"
KEY = "sk-proj-abcdefgh12345678"


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path) as web:
        yield web


@pytest.fixture
def made(web):
    return seeded_store.Seeded(web.store)


@pytest.fixture
def client(web):
    with web.client() as client:
        yield client


def ended(made, reason="budget", **options):
    job = made.start("ended", **options)
    made.round(job, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    made.end(job, JobStatus.DONE, reason)
    return job


# Transcripts


def test_a_page_tells_each_call_with_what_it_cost_and_led_to(made, client):
    job = ended(made)
    page = client.get(f"/jobs/{job}/transcript").text
    assert f'<a class="button" href="/jobs/{job}/transcript">What models said</a>' in client.get(f"/jobs/{job}").text
    for said in ("1. coder: write", "2. judge: write", "2751 tokens in, 837 out", "$0.0125", "4.6 s", "passed", "1.50"):
        assert said in page
    assert f'href="/jobs/{job}/candidates/{made.candidates[job][1]}"' in page
    assert "the whole call" in page and "All that was sent and said" in client.get(f"/jobs/{job}/transcript/1").text


def test_keys_are_shown_nowhere(made, client):
    job = made.start("told")
    made.round(job, 1, seeded_store.evaluation("wrong"), text=KEY)
    made.journal(job)(Event("llm_fault", 1, {"role": "coder", "model": "m", "message": f"key {KEY} refused"}))
    paths = (f"/jobs/{job}/transcript?fold=none", f"/jobs/{job}/transcript/1", f"{API}/jobs/{job}/transcript")
    for path in (*paths, f"{API}/jobs/{job}/transcript?messages=true"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert KEY not in answer.text and "[removed]" in answer.text


def test_the_page_of_a_hostile_call_shows_it_whole_and_as_text(made, client):
    job = made.start("bad")
    made.round(job, 1, seeded_store.evaluation("wrong"), text=seeded_store.HOSTILE + seeded_store.LONG)
    page = client.get(f"/jobs/{job}/transcript/1").text
    assert seeded_store.LONG in page and seeded_store.LONG not in client.get(f"/jobs/{job}/transcript").text
    assert "<img" not in page and "window.hacked=1&lt;/script&gt;" in page
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", page)


def test_a_page_says_how_many_parts_of_a_call_it_leaves_out(made, client):
    job = made.start("many parts")
    data = {
        "key": "1", "attempt": 1, "model": "m", "role": "coder", "purpose": "write", "prompt_tokens": 9,
        "completion_tokens": 9, "cost_usd": 0.1, "latency_s": 1.0, "attempts": 1, "truncated": False, "messages": [],
        "reply": "", "reasoning": "", "reasoning_tokens": None,
        "tool_calls": [{"function": {"name": f"t{number}", "arguments": "{}"}} for number in range(1_300)],
    }  # fmt: skip
    made.journal(job)(Event("llm_call", 1, data))
    page = client.get(f"/jobs/{job}/transcript").text
    assert f'<a href="/jobs/{job}/transcript/1">1,201 more parts, in the whole call</a>' in page
    assert "page 1 of 3" in client.get(f"/jobs/{job}/transcript/1").text


def test_a_transcript_is_for_those_who_may_see_the_job(tmp_path):
    with opened(tmp_path, login=True) as web:
        job = ended(seeded_store.Seeded(web.store))
        paths = (f"/jobs/{job}/transcript", f"/jobs/{job}/transcript/1", f"{API}/jobs/{job}/transcript")
        for path in paths:
            assert web.client().get(path).status_code in (303, 401)
            assert web.client(web.token("viewer", "eve")).get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/jobs/99/transcript", "/jobs/1/transcript/3", f"{API}/jobs/99/transcript", "/jobs/1/transcript/0"]
)
def test_what_is_not_there_is_not_found(made, client, path):
    ended(made)
    assert client.get(path).status_code in (404, 422)


def test_a_candidate_leads_to_its_call(made, client):
    job = ended(made)
    answer = client.get(f"/jobs/{job}/candidates/{made.candidates[job][1]}/call")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job}/transcript?page=1#call-1")
    answer = client.get(f"/jobs/{job}/candidates/{'0' * 64}/call")
    assert answer.headers["location"] == f"/jobs/{job}/transcript"


def test_the_api_gives_calls_in_pages(made, client):
    job = ended(made)
    first = client.get(f"{API}/jobs/{job}/transcript", params={"limit": 1}).json()
    assert first["next_cursor"] == 1
    call = next(entry for entry in first["entries"] if entry["entry"] == "call")
    assert (call["number"], call["role"], call["messages"]) == (1, "coder", [])
    assert call["led"]["verdict"] == "passed"
    rest = client.get(f"{API}/jobs/{job}/transcript", params={"cursor": 1, "messages": True}).json()
    assert rest["next_cursor"] is None
    calls = [entry for entry in rest["entries"] if entry["entry"] == "call"]
    assert [(entry["number"], len(entry["messages"])) for entry in calls] == [(2, 1)]
    assert rest["entries"][-1]["kind"] == "ended"


def test_two_hundred_calls_are_quick(made, client):
    job = made.start("many")
    record = made.journal(job)
    text = "for (int i = 0; i < n; ++i) y[i] = x[i];  // × ünïcode\n" * 400
    for number in range(1, 201):
        data = {
            "key": f"{number}", "attempt": 1, "model": "m", "role": "coder", "purpose": "write", "prompt_tokens": 9,
            "completion_tokens": 9, "cost_usd": 0.1, "latency_s": 1.0, "attempts": 1, "truncated": False,
            "messages": [{"role": "user", "content": f"{number} {text}"}], "reply": text, "reasoning": text,
            "reasoning_tokens": None, "tool_calls": [],
        }  # fmt: skip
        record(Event("llm_call", number, data))
    client.get("/jobs")  # what is made once
    for path in (f"/jobs/{job}/transcript?page=5", f"/jobs/{job}/transcript/100"):
        began = time.perf_counter()
        answer = client.get(path)
        took_s = time.perf_counter() - began
        assert answer.status_code == 200
        assert len(answer.content) < 2_000_000
        assert took_s < 5  # half a second where nothing else runs


# Larger limits


def test_a_job_that_ended_on_its_budget_goes_on_through_the_api(made, client):
    job = ended(made)
    refused = client.post(f"{API}/jobs/{job}/resume")
    assert (refused.status_code, "--budget-usd" in refused.json()["detail"]) == (409, True)
    low = client.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 0.01})
    assert (low.status_code, "has used $0.025 already" in low.json()["detail"]) == (422, True)
    answer = client.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 3, "rounds": 9})
    assert answer.status_code == 200
    told = answer.json()
    assert (told["status"], told["options"]["budget_usd"], told["options"]["rounds"]) == ("queued", 3, 9)
    assert "queued already" in client.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 4}).json()["detail"]


@pytest.mark.parametrize("body", [{"budget_usd": "3"}, {"budget": 3}, {"rounds": 0}, {"budget_usd": -1}, [1]])
def test_limits_that_no_job_may_have_are_refused(made, client, body):
    job = ended(made)
    assert client.post(f"{API}/jobs/{job}/resume", json=body).status_code == 422
    with made.store.read() as session:
        assert jobs.get_job(session, job).status is JobStatus.DONE


def test_the_page_of_a_job_that_ended_on_a_limit_has_a_form_for_more(made, client):
    job = ended(made, "rounds")
    page = client.get(f"/jobs/{job}").text
    assert 'name="rounds"' in page and 'name="budget_usd"' not in page
    token = page.partition('name="csrf-token" content="')[2].partition('"')[0]
    for value, status in (("many", 422), ("3", 422), ("9", 303)):
        answer = client.post(f"/jobs/{job}/resume", data={"csrf_token": token, "rounds": value})
        assert answer.status_code == status, value
    with made.store.read() as session:
        assert jobs.get_job(session, job).options["rounds"] == 9


def test_limits_are_told_to_the_last_digit(made, client):
    job = made.start("cut short", budget_tokens=1_234_567, budget_s=36_000, budget_evaluations=12_345)
    made.end(job, JobStatus.FAILED, "process_died")
    page = client.get(f"/jobs/{job}").text
    for name, present, used in (
        ("budget_usd", "$2.00", "$0"), ("budget_tokens", "1,234,567", "0"), ("budget_s", "36,000", "0"),
        ("budget_evaluations", "12,345", "0"),
    ):  # fmt: skip
        field = page.partition(f'id="more-{name}"')[2].partition("</p>")[0]
        assert f'placeholder="more than {present}"' in field and f"{used} of {present} used" in field


@pytest.mark.parametrize("reason", ["plateau", "judge"])
def test_a_job_that_ended_for_another_reason_has_no_form(made, client, reason):
    assert 'id="more"' not in client.get(f"/jobs/{ended(made, reason)}").text


def test_a_job_of_a_batch_or_another_user_does_not_go_on_with_more(tmp_path):
    with opened(tmp_path, login=True) as web:
        made = seeded_store.Seeded(web.store)
        job = ended(made)
        bob, ada = (web.client(web.token("submitter", user)) for user in ("bob", "ada"))
        assert "another user's" in bob.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 9}).json()["detail"]
        assert 'id="more"' not in bob.get(f"/jobs/{job}").text
        with web.store.write() as session:
            session.get_one(JobRow, job).batch_id = batches.add_batch(
                session, name="b", user="ada", spec={}, budget_usd=None
            )
        told = ada.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 9})
        assert (told.status_code, "batch resume 1" in told.json()["detail"]) == (422, True)


def test_a_quota_counts_only_what_is_added(tmp_path):
    with opened(tmp_path, login=True) as web:
        made = seeded_store.Seeded(web.store)
        job = ended(made, model="openai/gpt-4o-mini")
        ada = web.client(web.token("submitter", "ada", max_usd_a_day=3.0))
        refused = ada.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 40})
        assert (refused.status_code, "$3.00 a day" in refused.json()["detail"]) == (403, True)
        with web.store.read() as session:
            kept = jobs.get_job(session, job)
        assert (kept.status, kept.options["budget_usd"]) == (JobStatus.DONE, 2.0)
        assert ada.post(f"{API}/jobs/{job}/resume", json={"budget_usd": 2.5}).status_code == 200


# What a job is doing


def test_the_api_says_what_a_job_is_doing(made, client):
    job = made.start("now")
    made.journal(job)(Event("evaluation_started", 1, {"hash": "e" * 64}))
    doing = client.get(f"{API}/jobs/{job}").json()["activity"]
    assert (doing["phase"], doing["round"], doing["candidate_hash"]) == ("queued", 1, "e" * 64)
    assert doing["waiting"] == {"ahead": 0, "held_by": [], "doing": "", "workers": None}
    assert client.get(f"{API}/jobs/{ended(made)}").json()["activity"] is None

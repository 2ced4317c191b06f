"""Two ops of one name are two tasks: what is known of one of them says nothing of the other."""

import asyncio
import re

import pytest

from agents.protocols import Event
from db.evaluations import results
from db.jobs import jobs
from db.records import JobStatus, Measurements
from service.audit import restore_evaluation, retract_evaluation
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.jobs.query import round_lines, show_job
from service.views.jobs import job_view
from tasks.load import task_from_source
from tests.support.web_application import CANDIDATE, HASHES, OP, opened
from web.pages import submit

SLOW = OP.replace("torch.relu(x)", "torch.relu(x.double()).float()")
FAST_HASH, SLOW_HASH = (task_from_source(source, name="relu").source_hash for source in (OP, SLOW))


def done_job(store, source, *, speedup, model):
    task = task_from_source(source, name="relu")
    owner = this_process()
    with store.write() as session:
        job_id = jobs.add_job(
            session,
            task_id=save_task(session, task),
            kind="optimize",
            platform="cpu",
            sandbox="docker",
            owner=owner,
            model=model,
            strategy="judge",
            options={"rounds": 1},
        )
        candidate_id = results.add_candidate(
            session, job_id, round_number=1, candidate_hash=HASHES[0], source=CANDIDATE
        )
        results.add_evaluation(
            session,
            f"evaluation-{job_id}",
            candidate_id=candidate_id,
            round_number=1,
            platform="cpu",
            device="CPU A",
            sandbox="docker",
            verdict="passed",
            code=None,
            message="",
            tags=["custom_kernel"],
            measurements=Measurements(speedup=speedup, speedup_low=speedup * 0.9, speedup_high=speedup * 1.1),
            result={"verdict": "passed"},
        )
        results.add_event(session, job_id, "round_started", 1, {"request": "write"})
        results.add_event(session, job_id, "candidate", 1, {"hash": HASHES[0], "change": "first"})
        results.add_event(
            session,
            job_id,
            "evaluated",
            1,
            {"candidate_hash": HASHES[0], "verdict": "passed", "code": None, "message": "", "speedup": speedup},
        )
        jobs.set_best(session, job_id, f"evaluation-{job_id}")
        jobs.finish_job(session, job_id, owner, status=JobStatus.DONE, stop_reason="rounds")
    return job_id


@pytest.fixture
def two(tmp_path):
    """An application with a job on each of two sources of one name; the slow reference makes for the higher speedup."""
    with opened(tmp_path) as web:
        fast = done_job(web.store, OP, speedup=1.25, model="openai/good")
        slow = done_job(web.store, SLOW, speedup=57.0, model="openai/other")
        yield web, fast, slow


def test_a_candidate_is_shown_with_the_evaluations_for_its_own_source_alone(two):
    web, fast, slow = two
    text = web.client().get(f"/jobs/{fast}/candidates/{HASHES[0]}").text
    assert "1.25×" in text and "57.00×" not in text
    again = done_job(web.store, OP, speedup=1.5, model="openai/third")
    assert "1.50×" in web.client().get(f"/jobs/{fast}/candidates/{HASHES[0]}").text
    address = f"/jobs/{fast}/candidates/{HASHES[0]}?evaluation=evaluation-"
    assert web.client().get(f"{address}{again}").status_code == 200
    assert web.client().get(f"{address}{slow}").status_code == 404


def test_the_page_of_a_task_shows_the_board_and_the_jobs_of_the_source_that_it_shows(two):
    web, fast, slow = two
    pages = [web.client().get(f"/tasks/local/relu?source={digest}").text for digest in (FAST_HASH, SLOW_HASH)]
    for text, own, other in zip(pages, ("1.25×", "57.00×"), ("57.00×", "1.25×"), strict=True):
        assert own in text and other not in text
    assert f'href="/jobs/{fast}"' in pages[0] and f'href="/jobs/{slow}"' not in pages[0]


def test_the_leaderboard_tells_two_sources_of_one_name_apart_and_leads_to_each(two):
    web, _, _ = two
    text = web.client().get("/leaderboard").text
    for digest in (FAST_HASH, SLOW_HASH):
        assert f"<code>{digest[:8]}</code>" in text
        assert f'href="/tasks/local/relu?source={digest}"' in text


def test_a_source_older_than_those_that_are_listed_still_has_its_page(two):
    web, _, _ = two
    with web.store.write() as session:
        for number in range(55):
            save_task(session, task_from_source(f"{OP}\nNUMBER = {number}\n", name="relu"))
    answer = web.client().get(f"/tasks/local/relu?source={FAST_HASH}")
    assert answer.status_code == 200 and "1.25×" in answer.text
    assert web.client().get(f"/tasks/local/relu?source={'0' * 64}").status_code == 404


def test_an_uploaded_op_is_read_outside_the_event_loop(tmp_path, monkeypatch):
    loops = []

    def read(source, **given):
        try:
            loops.append(asyncio.get_running_loop())
        except RuntimeError:
            loops.append(None)
        return task_from_source(source, **given)

    monkeypatch.setattr(submit, "task_from_source", read)
    with opened(tmp_path) as web:
        client = web.client()
        csrf = re.search(r'name="csrf-token" content="([^"]+)"', client.get("/submit").text)[1]
        answer = client.post("/submit", data={"csrf_token": csrf, "do": "check"}, files={"file": ("relu.py", OP)})
    assert answer.status_code == 200 and "Valid: category" in answer.text
    assert loops == [None]


def test_a_result_that_was_taken_back_is_marked_in_its_round_and_left_out_of_the_curve(two):
    web, fast, _ = two
    assert [point.best for point in job_view(web.store, fast).curve] == [1.25]
    assert "retracted" not in web.client().get(f"/jobs/{fast}").text
    retract_evaluation(web.store, f"evaluation-{fast}", actor="operator", reason="its clock was wrong")
    assert [line.outcome for line in show_job(web.store, fast).rounds] == ["passed, retracted"]
    view = job_view(web.store, fast)
    assert [(each.line.retracted, each.line.best) for each in view.rounds] == [(True, False)]
    assert [(point.speedup, point.best) for point in view.curve] == [(None, None)]
    assert ">retracted</span>" in web.client().get(f"/jobs/{fast}").text
    (line,) = web.client().get(f"/api/v1/jobs/{fast}").json()["rounds"]
    assert line["retracted"] is True and line["verdict"] == "passed"
    restore_evaluation(web.store, f"evaluation-{fast}", actor="operator", reason="it was right")
    (line,) = web.client().get(f"/api/v1/jobs/{fast}").json()["rounds"]
    assert line["retracted"] is False and line["best"] is True


def test_a_round_that_repeats_a_file_is_taken_back_with_the_evaluation_that_it_shows():
    def said(number, digest):
        return Event("evaluated", number, {"candidate_hash": digest, "verdict": "passed", "speedup": 2.0})

    events = [said(1, "a"), said(2, "b"), said(3, "a"), said(4, "b")]
    judged = [("a", 1, True), ("b", 2, True), ("b", 4, False)]
    assert [line.retracted for line in round_lines(events, "b", judged)] == [True, True, True, False]
    assert [line.best for line in round_lines(events, "b", judged)] == [False, False, False, True]

"""What a job that has not ended is said to be doing: the phase, the usual time, and whom it waits for."""

import time

import pytest

from agents.protocols import Event
from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import JobStatus, Owner
from db.tables import JobRow
from evaluator.platforms import load_platform
from service.database import open_store
from service.evaluation_context import BEGINNING, WAITING
from service.jobs.activity import read_activity
from service.jobs.journal import Journal
from service.jobs.phase_notes import PHASE, PhaseNotes, place_of
from service.jobs.query import show_job
from service.settings import load_settings
from service.views.wording import activity_line
from tests.support import seeded_store
from tests.support.killable_jobs import QuickContext, Sandbox

DEVICE = "AMD EPYC, 2 cores"  # of the results in tests/data
HERE = {"device": DEVICE, "places": ["a"]}


@pytest.fixture
def made(tmp_path):
    store = open_store(load_settings(data_dir=tmp_path))
    yield seeded_store.Seeded(store)
    store.close()


def activity(made, job_id):
    return show_job(made.store, job_id).activity


def begin(made, job_id, number=1, kind="evaluation_started"):
    made.journal(job_id)(Event(kind, number, {"hash": f"{number:064x}"}))


def phase(made, job_id, name, where=HERE, number=1):
    with made.store.write() as session:
        results.add_event(session, job_id, PHASE, number, {"phase": name, **where})


def of_a_command(made, job_id):
    with made.store.write() as session:
        session.get_one(JobRow, job_id).worker_id = None


def call_begins(made, job_id, model="openai/m", number=1, key="k"):
    data = {"key": key, "attempt": 1, "model": model, "role": "coder", "purpose": "write", "worst_usd": 0.0}
    made.journal(job_id)(Event("llm_started", number, {**data, "worst_tokens": 0}))


# Phases


def test_an_evaluation_goes_through_its_phases(made):
    job = made.start("one")
    assert activity(made, job) is None
    begin(made, job)
    assert (activity(made, job).phase, activity(made, job).candidate_hash) == ("queued", f"{1:064x}")
    for name in ("starting", "building", "checking"):
        phase(made, job, name)
        time.sleep(0.02)
    found = activity(made, job)
    assert (found.phase, found.doing, found.round, found.proof) == ("checking", "checking outputs", 1, False)
    assert [(each.name, each.now) for each in found.phases] == [
        ("queued", False),
        ("starting", False),
        ("building", False),
        ("checking", True),
    ]
    assert all(each.elapsed_s >= 0.01 for each in found.phases if each.name != "queued")
    assert found.elapsed_s == pytest.approx(sum(each.elapsed_s for each in found.phases[1:]))  # without its wait
    assert (found.usual_s, found.waiting) == (None, None)
    made.journal(job)(Event("evaluated", 1, {"candidate_hash": f"{1:064x}", "verdict": "crashed", "code": None}))
    assert activity(made, job) is None


def test_a_command_evaluates_at_once(made):
    job = made.start("one")
    of_a_command(made, job)
    begin(made, job, kind="proof_started")
    found = activity(made, job)
    assert (found.phase, found.proof, found.waiting) == ("starting", True, None)
    assert "full precision" in activity_line(found)


def test_what_earlier_evaluations_took_says_what_is_usual(made):
    earlier = made.start("earlier")
    for number, seconds in enumerate((10.0, 12.0, 20.0), 1):
        cost_s = {"start": 1.0, "build": 2.0, "correctness": 3.0, "timing": seconds, "limits": 0.5, "total": 20.0}
        made.round(earlier, number, seeded_store.evaluation("passed", speedup=1.5, cost_s=cost_s))
    job = made.start("now")
    begin(made, job, kind="proof_started")  # the results were no trials
    phase(made, job, "building")
    found = activity(made, job)
    usual = {each.name: each.usual_s for each in found.phases}
    assert usual == {"queued": None, "starting": 1.0, "building": 2.0, "checking": 3.0, "timing": 12.5}
    assert found.usual_s == 18.5
    assert [each.elapsed_s for each in found.phases if each.name in ("checking", "timing")] == [None, None]
    assert "of usually 18 s" in activity_line(found)


def test_evaluations_of_another_device_or_effort_say_nothing(made):
    earlier = made.start("earlier")
    made.round(earlier, 1, seeded_store.evaluation("passed", speedup=1.5))
    job = made.start("now")
    begin(made, job)  # a trial
    phase(made, job, "building")
    assert activity(made, job).usual_s is None
    begin(made, job, 2, kind="proof_started")
    phase(made, job, "building", {"device": "another", "places": []}, number=2)
    assert activity(made, job).usual_s is None


def test_those_of_the_same_task_are_asked_if_there_are_enough(made):
    other = made.start("other", made.task("starter/mixed_pool"))
    for number in range(1, 6):
        made.round(other, number, seeded_store.evaluation("passed", speedup=2.0, cost_s={"timing": 100.0}))
    same = made.start("same")
    for number in range(1, 4):
        made.round(same, number, seeded_store.evaluation("passed", speedup=2.0, cost_s={"timing": 4.0}))
    job = made.start("now")
    begin(made, job, kind="proof_started")
    phase(made, job, "timing")
    assert activity(made, job).usual_s == 4.0


def test_a_call_of_a_model_is_something_too(made):
    job = made.start("one")
    made.round(job, 1, seeded_store.evaluation("wrong"))
    call_begins(made, job, model="m", number=2)
    found = activity(made, job)
    assert (found.phase, found.round, found.usual_s) == ("model", 2, 4.6)
    assert found.doing == "the coder answers (write)"


def test_while_models_answer_in_parallel_the_call_that_has_waited_longest_is_shown(made):
    job = made.start("one")
    for key, model in (("a", "openai/first"), ("b", "openai/second"), ("c", "openai/third")):
        call_begins(made, job, model=model, key=key)
    first = activity(made, job)
    failed = {"key": "b", "attempt": 1, "model": "openai/second", "role": "coder", "purpose": "write"}
    made.journal(job)(Event("llm_failed", 1, {**failed, "error": "E", "message": "", "maybe_paid": False}))
    assert activity(made, job).since == first.since and first.phase == "model"
    with made.store.write() as session:
        results.add_event(session, job, "llm_call", 1, {"key": "a", "model": "openai/first"})
    assert activity(made, job).since > first.since, "the third"
    begin(made, job)
    phase(made, job, "building")
    with made.store.write() as session:
        results.add_event(session, job, "llm_call", 1, {"key": "c", "model": "openai/third"})
    assert activity(made, job).phase == "building", "an answer ends no evaluation"
    made.journal(job)(Event("evaluated", 1, {"candidate_hash": f"{1:064x}", "verdict": "crashed", "code": None}))
    assert activity(made, job) is None


def test_a_job_that_ended_does_nothing(made):
    job = made.start("one")
    begin(made, job)
    made.end(job, JobStatus.FAILED, "error", "x")
    assert activity(made, job) is None


def test_an_evaluation_under_way_when_the_process_died_is_looked_for_again(made):
    job = made.start("one")
    begin(made, job)
    phase(made, job, "timing")
    made.journal(job)(Event("job_started", 0, {"rounds": 6}))
    phase(made, job, "building")
    found = activity(made, job)
    assert (found.phase, found.candidate_hash) == ("building", f"{1:064x}")
    assert [each.name for each in found.phases] == ["queued", "building"]


def test_the_evaluation_that_a_user_asked_for_has_phases(made):
    task = made.task()
    with made.store.write() as session:
        job = job_queue.add_queued_job(
            session, task_id=seeded_store._keep(session, task), kind="evaluate", platform="cpu", model=None,
            strategy=None, options={"candidate_hash": "c" * 64}, user="ada",
        )  # fmt: skip
        job_queue.take_job(session, job, 1, seeded_store.OWNER, worker_id="w", sandbox="docker")
    phase(made, job, "starting", number=0)
    phase(made, job, "timing", number=0)
    found = activity(made, job)
    assert (found.candidate_hash, found.proof, [each.name for each in found.phases]) == (
        "c" * 64,
        True,
        ["starting", "timing"],
    )


# Waits


def test_a_job_that_waits_for_the_device_says_behind_whom(made):
    holds, first, second = (made.start(name) for name in ("holds", "first", "second"))
    for job in (holds, first, second):
        begin(made, job)
    phase(made, holds, "timing")
    waits = activity(made, second).waiting
    assert (waits.held_by, waits.doing, waits.ahead) == ((holds,), "timing", 1)
    assert activity(made, first).waiting.ahead == 0
    assert f"1 before it, job {holds} has it (timing)" in activity_line(activity(made, second))


def test_at_the_lock_of_a_device_others_are_those_that_share_it(made):
    holds, elsewhere, waits = (made.start(name) for name in ("holds", "elsewhere", "waits"))
    for job in (holds, elsewhere, waits):
        of_a_command(made, job)
        begin(made, job)
    phase(made, holds, "checking", {"device": "GPU", "places": ["b", "a"]})
    phase(made, elsewhere, "checking", {"device": DEVICE, "places": ["z"]})
    phase(made, waits, "waiting")
    assert activity(made, waits).waiting.held_by == (holds,)


def test_a_compiler_search_holds_the_device_and_a_language_model_does_not(made):
    compiler, language, waits = (made.start(name) for name in ("compiler", "language", "waits"))
    call_begins(made, compiler, "builtin/compiler")
    call_begins(made, language)
    begin(made, waits)
    found = activity(made, waits).waiting
    assert (found.held_by, found.doing) == ((compiler,), "the compiler search")


def test_where_no_job_has_the_device_nobody_is_blamed(made):
    job = made.start("one")
    of_a_command(made, job)
    begin(made, job)
    phase(made, job, "waiting")
    waits = activity(made, job).waiting
    assert (waits.held_by, waits.ahead, waits.workers) == ((), 0, None)


def test_a_job_that_waits_for_a_worker_says_what_the_workers_do(made):
    running = made.start("running")
    with made.store.write() as session:
        workers.add_worker(
            session, "w-alive", Owner("h", 1, "s"), platform="cpu", slot=0, device=DEVICE, kind="k", sandbox="docker",
            version="1",
        )  # fmt: skip
        queued = [
            job_queue.add_queued_job(
                session, task_id=1, kind="optimize", platform="cpu", model="m", strategy="judge", options={}, user=user
            )
            for user in ("ada", "bob")
        ]
        found = read_activity(session, jobs.get_job(session, queued[1]), [])
    assert (found.phase, found.waiting.workers, found.waiting.held_by) == ("queued", 1, (running,))
    assert found.waiting.ahead == 1


# Notes


def test_each_phase_is_noted_once_and_again_in_the_next_evaluation(made):
    job = made.start("one")
    context = QuickContext(made.task(), load_platform("cpu"), Sandbox(), load_settings())
    told = []
    journal = Journal(made.store, job, told.append, where=place_of(context))
    for number in (1, 2):
        journal(Event("evaluation_started", number, {"hash": "h"}))
        for line in (WAITING, BEGINNING, "running the reference", "timing, process set 1", "timing, process set 2"):
            journal.progress(line)
    with made.store.read() as session:
        noted = results.list_events(session, job, kinds=[PHASE])
    assert [event.data["phase"] for event in noted] == ["waiting", "starting", "timing"] * 2
    assert {event.data["device"] for event in noted} == {context.device.name}
    assert all(len(place) == 12 for event in noted for place in event.data["places"])
    assert not [event for event in told if event.kind == PHASE]  # those who watch here are told the lines


def test_a_note_that_cannot_be_stored_is_left_out(made):
    job = made.start("one")
    of_a_command(made, job)
    journal = Journal(made.store, job, lambda event: None, owner=Owner("another", 1, "x"))
    journal.progress("timing, process set 1")  # the job is another's
    with made.store.read() as session:
        assert results.list_events(session, job, kinds=[PHASE]) == []


def test_notes_of_nothing_are_none():
    written = []
    notes = PhaseNotes(written.append, {})
    notes.read_line("job 1: timing, process set 1")
    assert written == []

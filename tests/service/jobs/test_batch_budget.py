"""A batch's total budget is never exceeded, whatever jobs cost and in whatever order they begin, end and die."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete
from sqlalchemy.orm import Session

from db.evaluations import results
from db.evaluations.tasks import add_task
from db.jobs import batches, job_queue, jobs
from db.records import JobRecord, JobStatus, LlmCall
from db.store import Store
from db.tables import BatchRow, EventRow, JobRow, LlmCallRow
from service.batches.manage import resume_batch, show_batch, start_batch
from service.batches.spec import make_spec
from service.cancellation import CancelToken
from service.errors import BadRequest
from service.jobs.batch_budget import OWN_BUDGET, WEIGHT, allot_budget, finish_without_budget
from service.jobs.liveness import this_process
from service.jobs.local import resume
from service.settings import load_settings
from service.submissions.access import Principal, Role
from service.submissions.quotas import QuotaExceeded, check_quota
from tests.support.fast_batches import coder, quick, run_all, write_ops

OWNER = this_process()
FITTING = {
    "take": (JobStatus.QUEUED,),
    "done": (JobStatus.RUNNING,),
    "die": (JobStatus.RUNNING,),
    "requeue": (JobStatus.INTERRUPTED, JobStatus.FAILED),
}


def make_batch(
    store: Store, budget_usd: float | None, jobs_: int, *, own: float | None = None, model: str = "openai/x"
) -> tuple[int, list[int]]:
    with store.write() as session:
        for table in (EventRow, LlmCallRow, JobRow, BatchRow):
            session.execute(delete(table))
        task = add_task(
            session, suite="local", name="op", source_hash="0" * 64, source="", category="other", dtype="float32"
        )
        batch_id = batches.add_batch(session, name="", user="u", spec={}, budget_usd=budget_usd)
        ids = [
            job_queue.add_queued_job(
                session,
                task_id=task,
                kind="optimize",
                platform="cpu",
                model=model,
                strategy="judge",
                options={"budget_usd": own},
                user="u",
                batch_id=batch_id,
                sample=1,
            )
            for _ in range(jobs_)
        ]
    return batch_id, ids


def take(store: Store, job_id: int) -> float:
    """Take a job as a worker does; what it was allotted, or 0 where it ended for want of money."""
    with store.write() as session:
        job = jobs.get_job(session, job_id)
        assert job_queue.take_job(session, job_id, job.attempt, OWNER, worker_id="w", sandbox="docker")
        allotted = allot_budget(session, job_id)
        if allotted <= 0:
            finish_without_budget(session, job_id, OWNER)
    return allotted


def get(store: Store, job_id: int) -> JobRecord:
    with store.read() as session:
        return jobs.get_job(session, job_id)


def call(session: Session, job_id: int, number: int, usd: float, *, answered: bool) -> None:
    """A call that may cost so much, as the ledger has it; its reply came, or was lost."""
    about = {"key": f"coder:{number}", "attempt": 1}
    results.add_event(session, job_id, "llm_started", 1, {**about, "worst_usd": usd, "worst_tokens": 1})
    if answered:
        data = {"model": "x", "prompt_tokens": 1, "completion_tokens": 1, "cost_usd": usd, "latency_s": 0.1}
        results.add_event(session, job_id, "llm_call", 1, {**about, **data})
        results.add_llm_call(
            session, job_id, LlmCall(1, "x", "coder", "", [], "", 1, 1, usd, 0.1, key=f"coder:{number}")
        )
        jobs.set_spent(session, job_id, cost_usd=results.llm_usage(session, job_id)[0], tokens=1)


@st.composite
def courses(draw: st.DrawFn) -> list[tuple[str, int, float, float]]:
    """What happens, to which job, what share of its money it pays for good, and what share may have been billed."""
    acts = st.sampled_from(["take", "take", "take", "done", "die", "die", "requeue"])
    share = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1, allow_nan=False)
    return draw(st.lists(st.tuples(acts, st.integers(0, 2), share, share), min_size=6, max_size=30))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    course=courses(),
    total=st.floats(0.001, 100, allow_nan=False),
    own=st.none() | st.floats(0.001, 50, allow_nan=False),
    weights=st.none() | st.tuples(*[st.floats(0, 1, allow_nan=False)] * 3),
)
def test_the_total_is_never_exceeded(
    store: Store,
    course: list[tuple[str, int, float, float]],
    total: float,
    own: float | None,
    weights: tuple[float, ...] | None,
) -> None:
    _, ids = make_batch(store, total, 3, own=own)
    if weights is not None:
        with store.write() as session:
            for job_id, weight in zip(ids, weights, strict=True):
                jobs.update_options(session, job_id, **{WEIGHT: weight})
    worst = dict.fromkeys(ids, 0.0)  # what each job has cost at most, by what truly happened
    for number, (act, index, paying, losing) in enumerate(course):
        fitting = [each for each in (get(store, job_id) for job_id in ids) if each.status in FITTING[act]]
        if not fitting:
            continue
        job = fitting[index % len(fitting)]
        if act == "take":
            allotted = take(store, job.id)
            assert own is None or allotted <= own
            assert allotted == 0 or allotted >= worst[job.id]
        elif act in ("done", "die"):
            left = float(job.options["budget_usd"]) - worst[job.id]
            paid, lost = left * paying, left * (1 - paying) * losing
            with store.write() as session:
                call(session, job.id, 2 * number, paid, answered=True)
                call(session, job.id, 2 * number + 1, lost, answered=False)
                status = JobStatus.INTERRUPTED
                if act == "done":  # one that dies has no time to say what was lost
                    status = JobStatus.DONE
                    unsettled = (
                        sum(
                            event.data["worst_usd"]
                            for event in results.list_events(session, job.id, kinds=("llm_started",))
                        )
                        - results.llm_usage(session, job.id)[0]
                    )
                    jobs.set_unsettled(session, job.id, unsettled)
                jobs.finish_job(session, job.id, OWNER, status=status)
            worst[job.id] += paid + lost
        else:
            with store.write() as session:
                job_queue.requeue_job(session, job.id)
        running = [get(store, each) for each in ids]
        reserved = sum(
            max(worst[each.id], float(each.options["budget_usd"]))
            if each.status is JobStatus.RUNNING
            else worst[each.id]
            for each in running
        )
        assert reserved <= total * (1 + 1e-9)


def test_what_is_left_over_flows_to_later_jobs(store: Store) -> None:
    _, ids = make_batch(store, 9.0, 3)
    assert take(store, ids[0]) == pytest.approx(3.0)
    with store.write() as session:
        call(session, ids[0], 1, 1.0, answered=True)
        jobs.finish_job(session, ids[0], OWNER, status=JobStatus.DONE)
    assert take(store, ids[1]) == pytest.approx(4.0)
    with store.write() as session:
        jobs.finish_job(session, ids[1], OWNER, status=JobStatus.DONE)
    assert take(store, ids[2]) == pytest.approx(8.0)


def test_a_job_with_more_weight_may_use_more_of_what_is_left(store: Store) -> None:
    _, ids = make_batch(store, 10.0, 3)
    with store.write() as session:
        for job_id, weight in zip(ids, (0.6, 0.3, 0.1), strict=True):
            jobs.update_options(session, job_id, **{WEIGHT: weight})
    assert take(store, ids[0]) == pytest.approx(6.0)
    with store.write() as session:
        call(session, ids[0], 1, 2.0, answered=True)
        jobs.finish_job(session, ids[0], OWNER, status=JobStatus.DONE)
    assert take(store, ids[2]) == pytest.approx(8.0 * 0.1 / 0.4)
    assert take(store, ids[1]) == pytest.approx(6.0)


def test_jobs_that_run_side_by_side_have_their_shares_reserved(store: Store) -> None:
    _, ids = make_batch(store, 9.0, 3)
    assert [take(store, job_id) for job_id in ids] == [pytest.approx(3.0)] * 3


def test_a_jobs_own_budget_bounds_its_share_and_is_remembered(store: Store) -> None:
    _, ids = make_batch(store, 9.0, 2, own=2.0)
    assert take(store, ids[0]) == 2.0
    assert get(store, ids[0]).options[OWN_BUDGET] == 2.0
    _, ids = make_batch(store, 3.0, 2, own=2.0)
    assert take(store, ids[0]) == pytest.approx(1.5)
    with store.write() as session:
        jobs.finish_job(session, ids[0], OWNER, status=JobStatus.INTERRUPTED)
        job_queue.requeue_job(session, ids[0])
        jobs.finish_job(session, ids[1], OWNER, status=JobStatus.DONE)
    assert take(store, ids[1]) == pytest.approx(1.5)


def test_a_job_for_which_nothing_is_left_ends_without_running_and_can_be_resumed(store: Store) -> None:
    _, ids = make_batch(store, 1.0, 2)
    assert take(store, ids[0]) == pytest.approx(0.5)
    with store.write() as session:
        batches.set_budget(session, get(store, ids[0]).batch_id or 0, 0.5)
    assert take(store, ids[1]) == 0.0
    job = get(store, ids[1])
    assert (job.status, job.stop_reason) == (JobStatus.FAILED, "budget")
    assert job.error is not None and "nothing is left of the 0.50 dollars" in job.error
    with store.write() as session:
        assert job_queue.requeue_job(session, job.id)
        batches.set_budget(session, job.batch_id or 0, 2.0)
    assert take(store, job.id) == pytest.approx(1.5)


def test_what_nothing_bounds_is_left_as_it_is(store: Store) -> None:
    _, ids = make_batch(store, None, 1, own=2.0)
    assert take(store, ids[0]) == math.inf
    assert get(store, ids[0]).options == {"budget_usd": 2.0}
    _, ids = make_batch(store, 0.0, 2, model="builtin/compiler")
    assert [take(store, job_id) for job_id in ids] == [math.inf] * 2


def test_two_processes_that_begin_at_once_share_what_is_left(store: Store) -> None:
    _, ids = make_batch(store, 8.0, 8)
    with ThreadPoolExecutor(8) as pool:
        allotted = list(pool.map(lambda job_id: take(store, job_id), ids))
    assert sum(allotted) <= 8.0 + 1e-9
    assert min(allotted) > 0


def test_calls_of_a_job_whose_process_died_count_in_its_users_day(store: Store) -> None:
    principal = Principal("u", Role.SUBMITTER, token_id=1, max_usd_a_day=10.0)
    paid = load_settings(model="openai/x", price="1,1", budget_usd=4.0)

    def check(budget_usd: float, spent_usd: float = 0.0) -> None:
        wanted = paid.model_copy(update={"budget_usd": budget_usd})
        with store.write() as session:
            check_quota(session, principal, [wanted], spent_usd=spent_usd)

    _, (job_id,) = make_batch(store, None, 1, own=8.0)
    take(store, job_id)
    with store.write() as session:
        call(session, job_id, 1, 1.0, answered=True)
        call(session, job_id, 2, 3.0, answered=False)
        assert jobs.mark_interrupted(session, job_id, OWNER)
    check(6.0)
    with pytest.raises(QuotaExceeded, match=r"\$6\.00 are left"):
        check(6.01)
    with store.write() as session:
        results.add_event(session, job_id, "job_stopped", 1, {})
        jobs.set_unsettled(session, job_id, 3.0)
    check(6.0)
    with store.write() as session:  # taken up again, and killed once more
        call(session, job_id, 3, 0.5, answered=False)
    with pytest.raises(QuotaExceeded, match=r"\$5\.50 are left"):
        check(6.0)
    check(8.0, spent_usd=4.5)  # the job itself once more: of its budget 3.50 are left


def test_calls_of_a_job_that_was_cancelled_after_its_worker_died_count_in_its_users_day(store: Store) -> None:
    principal = Principal("u", Role.SUBMITTER, token_id=1, max_usd_a_day=10.0)
    _, (job_id,) = make_batch(store, None, 1, own=8.0)
    take(store, job_id)
    with store.write() as session:
        call(session, job_id, 1, 7.0, answered=False)
        job_queue.requeue_job(session, job_id, worker_id="w")
        assert jobs.request_cancel(session, job_id) is JobStatus.CANCELLED
        paid = load_settings(model="openai/x", price="1,1", budget_usd=4.0)
        with pytest.raises(QuotaExceeded, match=r"\$3\.00 are left"):
            check_quota(session, principal, [paid])


def test_real_jobs_of_a_batch_stay_within_its_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0, 3.0, 4.0])) as (options, store):
        spec = make_spec({"tasks": write_ops(tmp_path, 4), "models": ["openai/x"], "budget_usd": 0.03})
        batch_id = start_batch(spec, settings=options, store=store)
        run_all(batch_id, options, store)
        details = show_batch(store, batch_id)
        assert 0 < details.line.spent_usd <= 0.03
        reasons = [(job.status, job.stop_reason) for job in details.jobs]
        assert details.complete
        late = [job for job in details.jobs if job.stop_reason == "budget"]
        assert late, reasons
        failed = [job.job for job in late if job.status is JobStatus.FAILED]
        if failed:
            with pytest.raises(BadRequest):
                resume(failed[0], settings=options, store=store, observe=lambda event: None, cancel=CancelToken())
        resume_batch(store, batch_id, budget_usd=1.0)
        run_all(batch_id, options, store)
        assert show_batch(store, batch_id).line.spent_usd <= 1.0

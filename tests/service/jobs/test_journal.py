"""A job's events become rows and are read back whole; its best candidate is exported with all that is known of it."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.protocols import Event, Outcome
from agents.replay import resume_state_from_events
from db.evaluations import results
from db.jobs import jobs
from db.leaderboard.query import leaderboard
from db.records import JobStatus, Owner
from db.tables import EventRow
from evaluator.evaluation import Check, Comparison, Correctness, Evaluation, Interval, Latency, Roofline
from evaluator.platforms import load_platform
from service.cancellation import CancelToken
from service.cli.job_output import show_spent
from service.database import open_store
from service.errors import BadRequest
from service.evaluate import read_candidate
from service.evaluation_context import EvaluationContext
from service.jobs.export import MARK, check_target, export_job, report_path
from service.jobs.journal import Journal
from service.jobs.liveness import this_process
from service.jobs.local import resume
from service.jobs.persistence import device_name, measurements_of, metrics_of, outcome_of, save_evaluation, save_task
from service.jobs.query import cancel_job, get_job, list_jobs, read_full_events, round_lines, show_job, worked_s
from service.settings import load_settings
from tasks.outcomes import Verdict, candidate_hash
from tasks.task import Task

SOURCE = "class ModelNew:\n    '''fast\r\n'''\n"
CHECK = Check("as | generated", True, 1e-7, 1e-5, "<script>alert(1)</script>")
PASSED = Evaluation(
    verdict=Verdict.PASSED,
    message="",
    tags=("custom_kernel",),
    correctness=Correctness((CHECK,), CHECK),
    speedup={"eager": Interval(2.0, 1.9, 2.1), "compile": Interval(1.25, 1.2, 1.3)},
    latency_ms={
        "candidate": Latency(1.0, 0.9, 1.1),
        "eager": Latency(2.0, 1.9, 2.1),
        "compile": Latency(1.25, 1.2, 1.3),
    },
    roofline=Roofline("memory", 0.5, 0.5),
    profile={"bytes_moved_min": 1024},
    provenance={"device": {"platform": "cpu", "name": "CPU A\n# x"}, "harness": "h", "security_boundary": True},
)
FAILED = Evaluation(Verdict.WRONG_OUTPUT, "off\x1b[2J by 1", code="values")


class FakeSandbox:
    name = "docker"


@pytest.fixture
def settings(tmp_path):
    return load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path)


@pytest.fixture
def store(settings):
    opened = open_store(settings)
    yield opened
    opened.close()


@pytest.fixture
def context(settings):
    return EvaluationContext(Task("op", "source of op"), load_platform("cpu"), FakeSandbox(), settings)


def start_job(store, context, owner=None, **options):
    with store.write() as session:
        return jobs.add_job(
            session,
            task_id=save_task(session, context.task),
            kind="optimize",
            platform="cpu",
            sandbox="docker",
            owner=owner or this_process(),
            model="builtin/compiler",
            strategy="judge",
            options={"ref": "op; rm -rf.py", **options},
        )


def play(store, context, job_id, observe=lambda event: None, cost_usd=0.5):
    """One failed and one passed round, as the agents tell them."""
    journal = Journal(store, job_id, observe)
    call = {"model": "m", "role": "coder", "purpose": "write", "prompt_tokens": 7, "completion_tokens": 3}
    call |= {"cost_usd": cost_usd, "latency_s": 1.0, "attempts": 1, "truncated": False, "messages": [], "reply": "text"}
    call |= {"attempt": 1, "reasoning": "hm", "reasoning_tokens": 2, "tool_calls": []}
    journal(Event("job_started", 0, {"rounds": 2}))
    for number, (source, evaluation) in enumerate((("bad", FAILED), (SOURCE, PASSED)), start=1):
        digest = candidate_hash(source)
        journal(Event("round_started", number, {"request": "write"}))
        key = {"key": f"{number}/coder/0:ab"}
        journal(Event("llm_started", number, {**key, "attempt": 1, "worst_usd": 2.0, "worst_tokens": 99}))
        journal(Event("llm_call", number, {**call, **key}))
        candidate = {"hash": digest, "source": source, "change": "", "repeat_of_round": None}
        journal(Event("candidate", number, candidate))
        with store.write() as session:
            kept = save_evaluation(session, job_id, context, source, evaluation, round_number=number)
        outcome = outcome_of(evaluation, context.platform, candidate_hash=digest, evaluation_id=kept)
        journal(Event("evaluated", number, {**outcome.to_json(), "repeat_of_round": None}))
        if evaluation.passed:
            journal(Event("best", number, {"hash": digest, "speedup": outcome.speedup}))
        journal(Event("round_done", number, {"verdict": outcome.verdict}))
        journal(Event("advice", number, {"change": "tile `it` | <b>"}))


# Conversion


def test_agents_get_the_allowed_and_the_used_error_of_each_family():
    checks = (Check("as generated", True, 6.81e-9, 1.234e-7), Check("NaN and Inf", True, note="skipped: why"))
    found = replace(PASSED, correctness=Correctness(checks))
    outcome = outcome_of(found, load_platform("cpu"), candidate_hash="c", evaluation_id="e")
    assert outcome.accuracy == {"as generated": "1.2e-07 allowed, 6.8e-09 used"}


def test_agents_get_one_share_of_the_time_where_the_profile_shows_it():
    shares = {"time_by_file": [["libgomp.so.1", 0.53]], "torch_operators_claimed": [["aten::mul", 0.5]]}
    cited = {"profile.time_by_file.libgomp.so.1": 0.53, "profile.torch_operators_claimed.aten::mul": 0.5}
    sampled = {"processor_time": {"samples": 900, "kinds": [{"kind": "waiting", "share": 0.35}]}, "operators": {}}
    for parts, kept in (
        ((), cited),
        (("processor_time",), {"profile.torch_operators_claimed.aten::mul": 0.5}),
        (("processor_time", "operators"), {}),
    ):
        detail = {name: sampled[name] for name in parts} | {"absent": {"calls": "it failed"}}
        metrics = metrics_of(replace(PASSED, profile={**shares, "detail": detail}))
        assert {name: value for name, value in metrics.items() if name in cited} == kept


def test_agents_may_cite_hardware_counters_by_question():
    warps, stall = "sm__warps_active.avg.pct_of_peak_sustained_active", "smsp__warp_issue_stalled_barrier.pct"
    counters = {"source": "ncu", "launches": 2, "occupancy": {warps: 50.5}, "stalls": {stall: 12.5}, "by_kernel": [{}]}
    detail = {"counters": counters, "sanitizer": {"errors": [["memcheck", 3]], "findings": []}, "absent": {}}
    metrics = metrics_of(replace(PASSED, profile={"detail": detail}))
    assert metrics[f"profile.detail.counters.occupancy.{warps}"] == 50.5
    assert metrics[f"profile.detail.counters.stalls.{stall}"] == 12.5
    assert metrics["profile.detail.sanitizer.errors.memcheck"] == 3


def test_a_figure_that_the_detailed_profile_repeats_is_given_once_and_its_own_cost_is_none():
    counts = {"128": {"total": 9}}
    profile = {
        "instructions": counts,
        "cost_s": {"all": 2.0},
        "detail": {"instructions": counts, "cost_s": {"all": 1.0}},
    }
    metrics = metrics_of(replace(PASSED, profile=profile))
    assert {name: value for name, value in metrics.items() if "profile" in name} == {
        "profile.instructions.128.total": 9
    }


def test_an_evaluation_keeps_its_numbers_for_queries_and_agents():
    measurements = measurements_of(PASSED)
    assert (measurements.speedup, measurements.speedup_low, measurements.speedup_high) == (2.0, 1.9, 2.1)
    assert (measurements.speedup_compile, measurements.speedup_compile_low, measurements.speedup_compile_high) == (
        1.25,
        1.2,
        1.3,
    )
    assert (measurements.candidate_ms, measurements.eager_ms, measurements.compile_ms) == (1.0, 2.0, 1.25)
    assert (measurements.speedup_best, measurements.speedup_best_low, measurements.best_baseline) == (
        1.25,
        1.2,
        "compile",
    )
    assert measurements.roofline_fraction == 0.5
    outcome = outcome_of(PASSED, load_platform("cpu"), candidate_hash="c", evaluation_id="e")
    assert (outcome.speedup, outcome.speedup_compile, outcome.roofline_bound) == (2.0, 1.25, "memory")
    assert "1,024 B" in outcome.profile_text
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


def test_a_failed_evaluation_has_no_numbers():
    measurements = measurements_of(FAILED)
    assert (measurements.speedup, measurements.speedup_compile, measurements.candidate_ms) == (None, None, None)
    assert device_name(FAILED) == "unknown"


# The journal


def test_what_is_recorded_is_stored_before_the_observer_hears_of_it(store, context):
    job_id = start_job(store, context)
    seen = []

    def observe(event):
        with store.read() as session:
            stored = results.list_events(session, job_id)
        seen.append(event.kind)
        assert stored[-1].kind == event.kind
        assert "source" not in stored[-1].data
        assert "messages" not in stored[-1].data

    play(store, context, job_id, observe)
    assert seen.count("evaluated") == 2


def test_calls_of_unknown_price_are_said_and_not_taken_for_free(store, context, capsys):
    job_id = start_job(store, context)
    play(store, context, job_id, cost_usd=None)
    details = show_job(store, job_id)
    assert details.end.unpriced_calls == 2
    show_spent(details.job, details.end.unsettled_usd, details.end.unpriced_calls, details.end.summary)
    assert "$0.0000 and 2 calls of unknown price" in " ".join(capsys.readouterr().out.split())


def test_rounds_candidates_calls_and_the_best_are_kept(store, context):
    job_id = start_job(store, context)
    play(store, context, job_id)
    details = show_job(store, job_id)
    assert (details.job.rounds_done, details.job.tokens, details.job.cost_usd) == (2, 20, 1.0)
    assert details.best is not None
    assert details.best.candidate_hash == candidate_hash(SOURCE)
    assert details.best.source == SOURCE
    assert [(line.number, line.verdict, line.best) for line in details.rounds] == [
        (1, "wrong_output", False),
        (2, "passed", True),
    ]
    assert [line.change for line in details.rounds] == ["first candidate", "tile `it` | <b>"]


def test_agents_can_go_on_from_what_is_stored(store, context):
    job_id = start_job(store, context)
    play(store, context, job_id)
    resume_state = resume_state_from_events(read_full_events(store, job_id), wall_s=worked_s(store, job_id))
    assert resume_state.evaluated == {candidate_hash("bad"), candidate_hash(SOURCE)}
    reply = resume_state.replies["2/coder/0:ab"]
    assert (reply.text, reply.reasoning, reply.reasoning_tokens, reply.cost_usd) == ("text", "hm", 2, 0.5)
    spent = resume_state.spent
    assert (spent.cost_usd, spent.prompt_tokens, spent.completion_tokens, spent.unsettled_usd) == (1.0, 14, 6, 0.0)
    assert spent.evaluations == 2
    assert 0 < spent.wall_s < 60


def test_what_a_resumed_job_comes_by_again_is_told_and_not_stored_twice(store, context):
    job_id = start_job(store, context)
    play(store, context, job_id)
    before = read_full_events(store, job_id)
    told = []
    journal = Journal(store, job_id, told.append, before)
    again = [event for event in before if event.kind not in ("job_started", "llm_started", "llm_call")]
    for event in [*again, Event("round_started", 3, {"request": "write"}), again[-1]]:
        journal(event)
    assert len(told) == len(again) + 2, "whoever watches sees the job from its beginning"
    assert [event.kind for event in read_full_events(store, job_id)[len(before) :]] == ["round_started", "advice"]
    assert get_job(store, job_id).rounds_done == 2


def test_a_better_candidate_of_an_earlier_run_stays_the_best(store, context):
    """A branch that failed then passes now: its `best` is new, and that of the faster branch behind it is not."""
    job_id = start_job(store, context)
    play(store, context, job_id)
    before, kept = read_full_events(store, job_id), get_job(store, job_id).best_evaluation_id
    journal = Journal(store, job_id, lambda event: None, before)
    slower = replace(PASSED, speedup={"eager": Interval(1.5, 1.4, 1.6)})
    digest = candidate_hash("slower")
    journal(Event("candidate", 3, {"hash": digest, "source": "slower", "change": "", "repeat_of_round": None}))
    with store.write() as session:
        save_evaluation(session, job_id, context, "slower", slower, round_number=3)
    journal(Event("best", 3, {"hash": digest, "speedup": 1.5}))
    assert get_job(store, job_id).best_evaluation_id == kept


TRIED = replace(PASSED, tags=("custom_kernel", "trial"), provenance={**PASSED.provenance, "settings": {"trial": True}})


def prove(store, context, job_id, source, evaluation, number):
    """Measure a candidate in the end, as the agents tell it; the evaluation's id."""
    digest = candidate_hash(source)
    with store.write() as session:
        kept = save_evaluation(session, job_id, context, source, evaluation, round_number=number)
    outcome = outcome_of(evaluation, context.platform, candidate_hash=digest, evaluation_id=kept)
    Journal(store, job_id, lambda event: None)(Event("proved", number, outcome.to_json()))
    return kept


def try_two(store, context):
    """A job whose first candidate was the best one until the second was; the ids of their trials."""
    job_id, kept = start_job(store, context), []
    journal = Journal(store, job_id, lambda event: None)
    for number, source in enumerate(("first", "second"), start=1):
        beside = None if number == 1 else Comparison(candidate_hash("first"), "better", Interval(1.05, 1.02, 1.08), 1)
        with store.write() as session:
            tried = replace(TRIED, champion=beside)
            kept.append(save_evaluation(session, job_id, context, source, tried, round_number=number))
        journal(Event("best", number, {"hash": candidate_hash(source), "speedup": 2.0}))
    return job_id, kept


def test_what_was_better_in_a_trial_is_the_best_though_its_interval_over_eager_says_nothing(store, context):
    job_id, (_, second) = try_two(store, context)
    assert get_job(store, job_id).best_evaluation_id == second


def test_the_evaluation_that_proved_the_best_is_the_jobs_at_once_and_the_only_one_with_a_rank(store, context):
    job_id, _ = try_two(store, context)
    proof = prove(store, context, job_id, "second", PASSED, 2)
    assert get_job(store, job_id).best_evaluation_id == proof
    with store.read() as session:
        [entry] = leaderboard(session)
        assert (entry.evaluation_id, entry.rank, entry.pooled) == (proof, 1, 1)
        for trial in (True, False):
            found = results.find_evaluation(session, job_id, candidate_hash("second"), trial=trial)
            assert ("trial" in found.tags) is trial
    shown = {line.number: line for line in round_lines(read_full_events(store, job_id), candidate_hash("second"))}
    assert (shown[2].speedup, shown[2].tags, shown[2].best) == (2.0, ("custom_kernel",), True)


@pytest.mark.parametrize("refused", [FAILED, Evaluation(Verdict.CRASHED, "by a signal")])
def test_a_best_that_is_refused_in_the_end_is_so_at_once(store, context, refused):
    job_id, (first, _) = try_two(store, context)
    prove(store, context, job_id, "second", refused, 2)
    assert get_job(store, job_id).best_evaluation_id == first
    prove(store, context, job_id, "first", refused, 1)
    assert get_job(store, job_id).best_evaluation_id is None


def test_the_time_that_a_job_was_run_leaves_out_the_pauses(store, context):
    job_id = start_job(store, context)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for kind, seconds in (("job_started", 0), ("best", 20), ("job_started", 1000), ("llm_call", 1005)):
        with store.write() as session:
            row = EventRow(job_id=job_id, kind=kind, round=0, data={}, created_at=began + timedelta(seconds=seconds))
            session.add(row)
    assert worked_s(store, job_id) == 25


def test_a_round_under_way_is_shown_as_such():
    (line,) = round_lines([Event("round_started", 1, {"request": "write"})])
    assert line.verdict == "under way"
    begun = [Event("round_started", 1, {"request": "write"}), Event("candidate", 1, {"hash": "a", "change": "first"})]
    for end in (Event("ended", 1, {"reason": "cancelled"}), Event("job_stopped", 1, {"reason": "llm_error"})):
        for more in ([], [Event("remeasured", 1, {})]):
            (line,) = round_lines([*begun, end, *more])
            assert line.verdict == "not evaluated", "nothing is under way in a job that has ended"
            (line,) = round_lines([*begun, end, *more, Event("job_started", 0, {"rounds": 2})])
            assert line.verdict == "under way", "a job that is resumed goes on with its round"
    (line,) = round_lines([Event("round_started", 1, {}), Event("round_done", 1, {"verdict": "no_candidate"})])
    assert line.verdict == "no_candidate"


# Jobs of earlier versions


@pytest.mark.parametrize("lacks", ["the device of its prompts", "the keys of its calls"])
def test_a_job_begun_by_an_earlier_version_is_not_resumed(settings, store, context, lacks):
    options = {} if lacks == "the device of its prompts" else {"device": "2 cores, AVX2"}
    job_id = start_job(store, context, **options)
    with store.write() as session:
        called = {"model": "m", "role": "coder"} | ({"key": "1/coder/0:ab"} if not options else {})
        results.add_event(session, job_id, "llm_call", 1, called)
        jobs.finish_job(session, job_id, this_process(), status=JobStatus.INTERRUPTED, stop_reason="interrupted")
    before = get_job(store, job_id), read_full_events(store, job_id)
    told = []
    with pytest.raises(BadRequest) as refused:
        resume(job_id, settings=settings, store=store, observe=told.append, cancel=CancelToken())
    assert str(refused.value) == (
        f"job {job_id} was begun by an earlier version, whose calls cannot be replayed; start it anew"
    )
    assert (get_job(store, job_id), read_full_events(store, job_id)) == before, "it is left as it is"
    assert told == []


# Jobs of the dead


def test_a_job_whose_process_died_is_interrupted_and_one_that_lives_is_not(store, context):
    me = this_process()
    dead = Owner(me.host, me.pid, "1:" + me.started.partition(":")[2])
    lost, alive = start_job(store, context, owner=dead), start_job(store, context)
    assert get_job(store, lost).status is JobStatus.INTERRUPTED
    assert get_job(store, alive).status is JobStatus.RUNNING
    assert [job.status for job in list_jobs(store, kind="optimize")] == [JobStatus.RUNNING, JobStatus.INTERRUPTED]
    assert cancel_job(store, lost).status is JobStatus.CANCELLED
    assert cancel_job(store, alive).cancel_requested


# Export


@pytest.fixture
def played(store, context):
    job_id = start_job(store, context)
    play(store, context, job_id)
    return get_job(store, job_id)


def test_the_exported_kernel_is_the_candidate_below_a_header(store, settings, played):
    exported = export_job(store, played, settings)
    text = exported.kernel.read_bytes().decode()
    header, _, body = text.partition("\n\n")
    assert body == SOURCE
    assert all(line.startswith("#") for line in header.splitlines())
    for words in (
        "local/op",
        played.task.source_hash,
        candidate_hash(SOURCE),
        "2.000",
        "1.900 to 2.100",
        "CPU A",
        "passed",
        f"it needs {load_platform('cpu').requirements_text()}.",
    ):
        assert words in header
    assert [node.name for node in ast.parse(text).body] == ["ModelNew"]
    assert subprocess.run([sys.executable, exported.kernel], check=False).returncode == 0


def test_the_header_and_the_report_name_a_fastest_baseline_that_is_none_of_the_usual_ones(
    store, settings, context, monkeypatch
):
    over = {**PASSED.speedup, "onnxruntime": Interval(1.1, 1.05, 1.15)}
    taken = {**PASSED.latency_ms, "onnxruntime": Latency(1.1, 1.0, 1.2)}
    monkeypatch.setitem(globals(), "PASSED", replace(PASSED, speedup=over, latency_ms=taken))
    job_id = start_job(store, context)
    play(store, context, job_id)
    exported = export_job(store, get_job(store, job_id), settings)
    header = exported.kernel.read_text().partition("\n\n")[0]
    told = [line.removeprefix("# Speedup over ") for line in header.splitlines() if line.startswith("# Speedup")]
    assert told == [
        "eager: 2.000 (95 % interval 1.900 to 2.100)",
        "torch.compile: 1.250 (95 % interval 1.200 to 1.300)",
        "the fastest baseline, ONNX Runtime: 1.100 (95 % interval 1.050 to 1.150)",
    ]
    assert "ONNX Runtime | 1.1" in exported.report.read_text()


def test_an_exported_kernel_that_is_measured_again_is_the_same_candidate(store, settings, played, tmp_path):
    assert read_candidate(export_job(store, played, settings).kernel) == SOURCE
    other = tmp_path / "other.py"
    for text in (f"# mine\n\n{SOURCE}", f"{MARK} 1\nimport os\n\n{SOURCE}", f"{MARK} 1", SOURCE):
        other.write_text(text)
        assert read_candidate(other) == text


def test_the_report_tells_all_and_escapes_what_it_was_told(store, settings, played):
    report = export_job(store, played, settings).report.read_text()
    for words in (
        "torch.compile",
        "2.000 (1.900 to 2.100)",
        "50%",
        "as \\| generated",
        "&lt;script&gt;",
        "tile 'it' \\| &lt;b&gt;",
        "not an LLM",
        "kernelwright evaluate 'op; rm -rf.py'",
        candidate_hash(SOURCE),
    ):
        assert words in report
    assert "<script>" not in report
    assert "\x1b" not in report


def test_files_go_where_they_were_asked_for(store, settings, played, tmp_path):
    exported = export_job(store, played, settings, out=tmp_path / "mine.py")
    assert (exported.kernel, exported.report) == (tmp_path / "mine.py", tmp_path / "mine.report.md")
    assert export_job(store, played, settings, out=tmp_path / "mine.py") == exported  # our own are replaced
    assert report_path(tmp_path / "best.py") == tmp_path / "report.md"
    assert export_job(store, played, settings).kernel == settings.data_dir / f"jobs/{played.id}/best.py"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "mine.py", "mine.report.md"]


def test_files_of_others_are_never_overwritten(store, settings, played, tmp_path):
    (tmp_path / "best.report.md").write_text("mine")
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(BadRequest, match="not written by Kernelwright"):
        export_job(store, played, settings, out=tmp_path / "best.py")
    assert (tmp_path / "report.md").read_text() == "mine"
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(BadRequest, match="not written by Kernelwright"):
        check_target(tmp_path / "folder.py")
    (tmp_path / "op.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "op.py")
    with pytest.raises(BadRequest, match="the op itself"):
        check_target(tmp_path / "link.py", keep=tmp_path / "op.py")


def test_without_a_passed_candidate_there_is_nothing_to_export(store, settings, context):
    job_id = start_job(store, context)
    with pytest.raises(BadRequest, match="no candidate that passed"):
        export_job(store, get_job(store, job_id), settings)

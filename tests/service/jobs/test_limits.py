"""A job that ended on a limit goes on with a larger one: from where it stopped, paying for nothing twice."""

import contextlib
import json
from dataclasses import dataclass, field

import pytest

from agents.protocols import Reply, ToolCall
from db.jobs import batches, jobs
from db.records import JobStatus
from db.tables import JobRow
from evaluator.platforms import load_platform
from service.cancellation import CancelToken
from service.database import open_store
from service.errors import BadRequest, Conflict
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.limits import limit_lines, raisable
from service.jobs.query import get_job, read_events
from service.settings import load_settings
from tests.fakes import AnsweringLLM, ScriptedLLM, fenced
from tests.support.commands import OP
from tests.support.killable_jobs import QuickContext, Sandbox

ADVICE = fenced(
    json.dumps({"bottleneck": "b", "change": "tile it", "evidence": ["latency_ms.candidate"], "stop": False}),
    language="json",
)
PRICE_USD = 0.01


def candidate(number):
    return f"class ModelNew:\n    speed = {number}\n"


@dataclass(frozen=True)
class CountingBench(QuickContext):
    """Notes each candidate that it evaluates in a trial."""

    seen: list[str] = field(default_factory=list)

    def evaluate(self, source, *, trial=False, **more):
        if trial:
            self.seen.append(source)
        return super().evaluate(source, **more)


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Starts and resumes jobs; what their models said and what was evaluated is in `llm` and `seen`."""
    (tmp_path / "op.py").write_text(OP)

    class Bench:
        def __init__(self):
            self.seen, self.llm = [], None
            self.settings = load_settings(data_dir=tmp_path / "data", model="openai/m", roofline_target=1.0)
            self.store = open_store(self.settings)

        def _run(self, work, llm, **more):
            self.llm = llm
            monkeypatch.setattr(job_run, "open_models", lambda *_, **__: llm)
            return work(store=self.store, observe=lambda event: None, cancel=CancelToken(), **more)

        def start(self, llm, **options):
            settings = self.settings.model_copy(update={"rounds": 9, "plateau_rounds": 0, **options})
            return self._run(lambda **more: local.optimize(str(tmp_path / "op.py"), **more), llm, settings=settings)

        def resume(self, llm, **limits):
            return self._run(lambda **more: local.resume(1, **more), llm, limits=limits, settings=self.settings)

    made = Bench()

    @contextlib.contextmanager
    def opened(task, settings, **_):
        yield CountingBench(task, load_platform("cpu"), Sandbox(), settings, seen=made.seen)

    monkeypatch.setattr(local, "open_evaluation_context", opened)
    yield made
    made.store.close()


def talk(first, last):
    """What the models of a job say in these rounds, by turns."""
    said = []
    for number in range(first, last + 1):
        said += [ADVICE] if number > 1 else []
        said.append(fenced(candidate(number)))
    return said


def test_a_job_that_ended_on_its_dollars_goes_on_with_more_and_pays_nothing_twice(bench):
    # A call costs a cent; its worst case is a reply of 2,000 tokens and the prompt.
    ended = bench.start(ScriptedLLM(talk(1, 3)), budget_usd=0.032, rounds=4)
    assert (ended.stop_reason, ended.job.status) == ("budget", JobStatus.DONE)
    paid, rounds = ended.job.cost_usd, ended.job.rounds_done
    asked = len(bench.llm.prompts)
    assert paid == pytest.approx(asked * PRICE_USD) and 1 <= rounds < 4
    seen = list(bench.seen)

    whole = talk(1, 4)[asked:]
    report = bench.resume(ScriptedLLM(whole), budget_usd=0.5)
    assert (report.stop_reason, report.job.rounds_done) == ("rounds", 4)
    assert bench.seen[: len(seen)] == seen and len(set(bench.seen)) == len(bench.seen)  # none was evaluated twice
    assert report.job.cost_usd == pytest.approx(7 * PRICE_USD)  # four candidates and three times advice, each once
    assert report.job.options["budget_usd"] == 0.5
    assert report.best.source == candidate(4)


def test_a_job_whose_rounds_are_done_goes_on_with_more_rounds(bench):
    bench.start(ScriptedLLM(talk(1, 2)), rounds=2)
    report = bench.resume(ScriptedLLM(talk(3, 4)), rounds=4)
    assert (report.stop_reason, report.job.rounds_done) == ("rounds", 4)
    assert bench.llm.requests() == ["judge-improve", "improve"] * 2
    assert bench.seen == [candidate(number) for number in (1, 2, 3, 4)]
    starts = [event for event in read_events(bench.store, 1) if event.kind == "round_started"]
    assert [event.round for event in starts] == [1, 2, 3, 4]


@pytest.mark.parametrize("strategy", ["sample", "tree", "contrastive"])
def test_every_strategy_finds_its_calls_again(bench, strategy):
    written = iter(range(1, 100))

    def answer(sections, messages):
        return ADVICE if sections["request"].startswith("judge") else fenced(candidate(next(written)))

    first = bench.start(AnsweringLLM(answer), strategy=strategy, rounds=6)
    asked = len(bench.llm.prompts)
    before = [tuple(prompt) for prompt in bench.llm.prompts]
    report = bench.resume(AnsweringLLM(answer), rounds=8)
    assert (first.job.rounds_done, report.job.rounds_done) == (6, 8)
    assert not {tuple(prompt) for prompt in bench.llm.prompts} & set(before) or strategy == "sample"
    assert report.job.cost_usd == pytest.approx((asked + len(bench.llm.prompts)) * PRICE_USD)
    alone = {"sample": 1, "contrastive": 1, "tree": 2}[strategy]  # calls of a round: the tree asks its Judge, too
    assert len(bench.llm.prompts) == 2 * alone


def test_a_budget_of_evaluations_is_raised_too(bench):
    ended = bench.start(ScriptedLLM(talk(1, 2)), budget_evaluations=2)
    assert ended.stop_reason == "budget"
    (line,) = [each for each in limit_lines(ended.job, []) if each.name == "budget_evaluations"]
    assert line.present == 2
    report = bench.resume(ScriptedLLM(talk(3, 3)), budget_evaluations=3)
    assert (report.stop_reason, report.job.rounds_done) == ("budget", 3)


def test_a_proof_of_an_earlier_end_does_not_keep_a_better_candidate_from_being_the_best(bench):
    ended = bench.start(ScriptedLLM(talk(1, 2)), rounds=2)
    assert ended.best.source == candidate(2)
    assert bench.resume(ScriptedLLM(talk(3, 3)), rounds=3).best.source == candidate(3)


# Refusals


def refused(bench, **limits):
    with pytest.raises(BadRequest) as caught:
        bench.resume(ScriptedLLM([]), **limits)
    job = get_job(bench.store, 1)
    assert not bench.llm.prompts and job.attempt == 0
    return str(caught.value)


def test_a_limit_below_what_was_used_is_refused(bench):
    bench.start(ScriptedLLM(talk(1, 2)), budget_usd=0.032)
    assert "has used $0.03 already" in refused(bench, budget_usd=0.02)
    assert "has a limit of $0.032; give it a larger one" in refused(bench, budget_usd=0.031)
    assert get_job(bench.store, 1).options["budget_usd"] == 0.032
    assert get_job(bench.store, 1).status is JobStatus.DONE


def test_a_job_that_is_done_needs_more_of_what_it_ended_for(bench):
    bench.start(ScriptedLLM(talk(1, 2)), rounds=2)
    assert "is done (rounds); it goes on with a larger limit: --rounds" in refused(bench)
    assert "larger limit: --rounds" in refused(bench, budget_usd=9.0)
    assert raisable(get_job(bench.store, 1)) == ("rounds",)


def test_a_job_that_ended_for_another_reason_does_not_go_on(bench):
    bench.start(ScriptedLLM([fenced(candidate(1)), *[ADVICE, fenced(candidate(1))] * 2]), plateau_rounds=1)
    assert "is done (plateau)" in refused(bench, rounds=20)
    assert limit_lines(get_job(bench.store, 1), []) == ()


def test_a_job_that_has_not_ended_is_refused(bench):
    bench.start(ScriptedLLM(talk(1, 1)), rounds=1)
    with bench.store.write() as session:
        session.get_one(JobRow, 1).status = JobStatus.RUNNING.value
    with pytest.raises(Conflict, match="running already; `kernelwright jobs cancel 1` ends it"):
        bench.resume(ScriptedLLM([]), rounds=2)


def test_a_job_of_a_batch_names_its_batch(bench):
    bench.start(ScriptedLLM(talk(1, 1)), rounds=1)
    with bench.store.write() as session:
        batch_id = batches.add_batch(session, name="b", user="local", spec={}, budget_usd=None)
        session.get_one(JobRow, 1).batch_id = batch_id
    assert f"batch resume {batch_id} --budget-usd X" in refused(bench, rounds=3)


def test_models_that_were_told_the_rounds_are_not_given_others(bench):
    calls = (ToolCall("1", "evaluate", json.dumps({"source": candidate(1)})),)
    reply = Reply("", "openai/m", 100, 10, PRICE_USD, 0.0, tool_calls=calls)
    bench.start(ScriptedLLM([reply]), strategy="tools", rounds=1)
    assert "is done (rounds)" in refused(bench, rounds=3)
    with bench.store.write() as session:
        jobs.update_options(session, 1, budget_usd=0.01)
        session.get_one(JobRow, 1).status = JobStatus.CANCELLED.value
    assert "were told the number at the beginning" in refused(bench, rounds=3)

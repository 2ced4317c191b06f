"""Each strategy: what it asks, what it evaluates, when it ends, and that it comes to the same again from its ledger."""

import itertools
import json
import random
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.history import Round, lessons_of
from agents.job import JobResult, JobSpec, run_job
from agents.llm.budget import Budget
from agents.prompting.parse import Advice, Lesson
from agents.protocols import (
    FRESH_START,
    NO_PREBUILDS,
    Event,
    LLMError,
    LLMFailed,
    Message,
    Outcome,
    Prebuilds,
    Reply,
    ResumeState,
    ToolCall,
)
from agents.replay import resume_state_from_events
from agents.stop_rules import StopReason
from agents.strategies.contrastive import sample_by_speed
from agents.strategies.sample import pass_at_k, summary_of
from agents.strategies.tool_calls import TOOLS, ToolError, evaluation_result, parse_call
from agents.strategies.tree import FIRST_NOTES, choose_beam
from tasks.outcomes import candidate_hash
from tests.fakes import AnsweringLLM, ScriptedLLM, fenced
from tests.support.cpu_platform import PROMPTS

SPEC = JobSpec(
    task_id="starter/op",
    task_source="class Model: pass  # the reference\n",
    category="reduce",
    dtype="float32",
    platform="cpu",
    device="2 cores",
    prompts=PROMPTS,
    model="openai/coder",
    rounds=6,
    plateau_rounds=0,
)


def source(speed: float, note: str = "") -> str:
    return f"class ModelNew:\n    speed = {speed}\n{note}"


def speed_of(text: str) -> float:
    return float(re.search(r"speed = ([\d.]+)", text)[1])  # type: ignore[index]


class FakeEvaluator:
    """Evaluates what a candidate says of itself: its speed, or 0 for a wrong one. Counts who works at the same time."""

    def __init__(self) -> None:
        self.evaluated: list[float] = []
        self.events: list[Event] = []
        self.lock = threading.Lock()

    def evaluate(self, text: str, champion: str | None = None) -> Outcome:
        assert self.lock.acquire(blocking=False), "a device measures one candidate at a time"
        try:
            speed = speed_of(text)
            self.evaluated.append(speed)
            digest = candidate_hash(text)
            if not speed:
                return Outcome(digest, "wrong_output", "values", "row 3 differs")
            latencies = {"eager": 4.0, "candidate": 4.0 / speed}
            return Outcome(digest, "passed", None, "", "", (), speed, speed * 0.99, speed * 1.01, latency_ms=latencies)
        finally:
            self.lock.release()

    def record(self, event: Event) -> None:
        with self.lock if not self.lock.locked() else threading.Lock():
            self.events.append(event)

    def data(self, kind: str) -> list[dict[str, object]]:
        return [dict(event.data) for event in self.events if event.kind == kind]


def run(
    evaluator: FakeEvaluator,
    llm: AnsweringLLM | ScriptedLLM,
    resume_state: ResumeState = FRESH_START,
    prebuilds: Prebuilds = NO_PREBUILDS,
    **change: object,
) -> JobResult:
    return run_job(
        replace(SPEC, **change),  # type: ignore[arg-type]
        evaluate=evaluator.evaluate,
        prove=lambda text: Outcome(candidate_hash(text), "passed", speedup=speed_of(text)),
        record=evaluator.record,
        llm=llm,
        should_stop=lambda: False,
        resume_state=resume_state,
        prebuilds=prebuilds,
    )


def advice(change: str, stop: bool = False, **more: object) -> str:
    value = {"bottleneck": "memory", "evidence": [], "change": change, "expected_speedup": 2, "stop": stop, **more}
    return f"```json\n{json.dumps(value)}\n```"


def improving(sections: dict[str, str], messages: Sequence[Message]) -> str:
    """Writes a candidate 0.5 faster than the one shown; the Judge names a change that nobody has named before."""
    if sections["request"].startswith("judge"):
        return advice(f"change {sections.get('history', '').count('change')} {sections.get('note', '')[:60]}")
    shown = [float(found) for found in re.findall(r"speed = ([\d.]+)", sections.get("candidate", ""))]
    scored = [float(found) for found in re.findall(r"speed = ([\d.]+)", sections.get("scored", ""))]
    change = json.loads(sections["advice"])["change"] if "advice" in sections else sections.get("note", "")
    return fenced(source(max([*shown, *scored, 0.5]) + 0.5, f"    change = {change!r}\n"))


# sample


def test_sample_asks_the_same_independently_and_reports_pass_at_k() -> None:
    speeds = itertools.cycle([0, 1.5, 0, 2.5])
    llm = AnsweringLLM(lambda sections, messages: fenced(source(next(speeds))))
    evaluator = FakeEvaluator()
    result = run(evaluator, llm, strategy="sample", rounds=8)
    assert len({json.dumps([message.to_json() for message in prompt]) for prompt in llm.prompts}) == 1
    assert "history" not in llm.prompts[0][1].content
    assert (result.rounds_done, result.stop_reason) == (8, StopReason.ROUNDS)
    assert result.summary == {
        "tries": 8,
        "passed": 4,
        "pass_at_k": {"1": 0.5, "2": round(1 - 6 / 28, 4), "4": round(1 - 1 / 70, 4), "8": 1.0},
        "best_of_k": 2.5,
    }
    assert evaluator.data("job_stopped")[0]["summary"] == result.summary
    assert sorted(evaluator.evaluated) == [0.0, 1.5, 2.5], "an identical file is evaluated once"


def test_a_try_that_fails_loses_none_of_the_others() -> None:
    asked = itertools.count(1)

    def answer(sections: dict[str, str], messages: Sequence[Message]) -> str | LLMError:
        number = next(asked)
        return LLMFailed("openai/coder", "the provider failed") if number == 2 else fenced(source(number))

    llm = AnsweringLLM(answer)
    evaluator = FakeEvaluator()
    result = run(evaluator, llm, strategy="sample", rounds=4)
    assert (result.stop_reason, result.rounds_done, len(evaluator.evaluated)) == (StopReason.LLM_ERROR, 3, 3)
    assert result.best is not None


@given(st.integers(1, 40), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_passing_try(tries: int, data: st.DataObject) -> None:
    passed, k = data.draw(st.integers(0, tries)), data.draw(st.integers(1, tries))
    value = pass_at_k(tries, passed, k)
    assert 0 <= value <= 1
    assert value == pytest.approx(1 - comb(tries - passed, k) / comb(tries, k))
    if k > 1:
        assert value >= pass_at_k(tries, passed, k - 1)
    if tries <= 8:
        draws = list(itertools.combinations([index < passed for index in range(tries)], k))
        assert value == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize("wrong", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_of_nonsense_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="tries=3"):
        pass_at_k(*wrong)


def test_no_tries_no_figures() -> None:
    assert summary_of(()) == {"tries": 0, "passed": 0, "pass_at_k": {}, "best_of_k": None}


@pytest.mark.parametrize("strategy", ["sample", "tree"])
@pytest.mark.parametrize("budget", [Budget(tokens=60_000), Budget(tokens=30_000), Budget(usd=0.3)])
def test_a_branch_waits_for_what_the_others_leave_of_their_worst_case(strategy: str, budget: Budget) -> None:
    """Each call reserves a long reply and takes a short one: several do not fit beside each other, all do in turn."""

    class Long(AnsweringLLM):
        def reply_limit(self, model: str) -> int:
            return 20_000

    result = run(FakeEvaluator(), Long(improving), strategy=strategy, rounds=8, budget=budget)
    assert (result.stop_reason, result.rounds_done) == (StopReason.ROUNDS, 8)


def test_no_more_is_written_than_can_be_evaluated() -> None:
    evaluator, numbers = FakeEvaluator(), itertools.count(1)
    llm = AnsweringLLM(lambda sections, messages: fenced(source(next(numbers))))
    result = run(evaluator, llm, strategy="sample", rounds=8, budget=Budget(evaluations=2))
    assert (result.stop_reason, len(evaluator.evaluated), len(llm.prompts)) == (StopReason.BUDGET, 2, 2)


# contrastive


def rounds_of(*speeds: float) -> tuple[Round, ...]:
    found = []
    for number, speed in enumerate(speeds, start=1):
        text = source(speed, f"    number = {number}\n")
        verdict = "passed" if speed else "crashed"
        outcome = Outcome(candidate_hash(text), verdict, speedup=speed or None, speedup_low=speed, speedup_high=speed)
        found.append(Round(number, "", text, outcome))
    return tuple(found)


def test_contrastive_shows_candidates_of_different_speed_the_fastest_last() -> None:
    evaluator, llm = FakeEvaluator(), AnsweringLLM(improving)
    result = run(evaluator, llm, strategy="contrastive", rounds=5)
    requests = [data["request"] for data in evaluator.data("round_started")]
    assert requests == ["write", "contrast", "contrast", "contrast", "contrast"]
    assert evaluator.evaluated == [1.0, 1.5, 2.0, 2.5, 3.0]
    assert result.best is not None and result.best.speedup == 3.0
    last = llm.prompts[-1][1].content
    shown = [float(found) for found in re.findall(r"(\d\.\d+) times as fast as eager", last)]
    assert (shown, len(shown)) == (sorted(shown), 3) and shown[-1] == 2.5
    assert "Performance analysis" in last and "Design" in last
    assert not any("judge" in prompt[1].content[:40] for prompt in llm.prompts)


def test_contrastive_repairs_while_nothing_passes() -> None:
    speeds = iter([0, 0, 1.5, 2.0])
    llm = AnsweringLLM(lambda sections, messages: fenced(source(next(speeds), f"    n = {len(llm.prompts)}\n")))
    evaluator = FakeEvaluator()
    run(evaluator, llm, strategy="contrastive", rounds=4)
    assert [data["request"] for data in evaluator.data("round_started")] == ["write", "repair", "repair", "contrast"]


@given(st.lists(st.floats(0.05, 50), max_size=12), st.integers())
def test_scored_candidates_are_of_different_kinds_and_hold_the_fastest(speeds: list[float], seed: int) -> None:
    chosen = sample_by_speed(rounds_of(*speeds, 0.0), random.Random(seed))
    shown = [candidate.outcome.speedup or 0.0 for candidate in chosen]
    assert shown == sorted(shown) and len(set(shown)) == len(shown) <= 3
    assert not speeds or shown[-1] == max(speeds)
    assert chosen == sample_by_speed(rounds_of(*speeds, 0.0), random.Random(seed))


# tree


def test_tree_takes_several_ways_on_and_evaluates_one_at_a_time() -> None:
    evaluator, llm = FakeEvaluator(), AnsweringLLM(improving)
    result = run(evaluator, llm, strategy="tree", rounds=11)
    requests = [data["request"] for data in evaluator.data("round_started")]
    assert requests[:3] == ["write"] * 3 and set(requests[3:]) == {"improve"}
    openings = {prompt[1].content.split("<note>")[1] for prompt in llm.prompts[:3]}
    assert len(openings) == 3, "first tries are told apart"
    assert (result.rounds_done, result.stop_reason) == (11, StopReason.ROUNDS)
    numbers = [event.round for event in evaluator.events if event.kind == "evaluated"]
    assert numbers == sorted(numbers) and len(set(numbers)) == 11
    assert result.best is not None and result.best.speedup == 2.0, "each generation stands on the one before"
    parents = [data["parent"] for data in evaluator.data("round_started")][3:]
    assert len(set(parents[:4])) == 2, "two candidates are taken further"


@pytest.mark.parametrize("strategy", ["tree", "sample"])
def test_what_is_written_side_by_side_is_begun_to_be_built_before_the_first_of_it_is_evaluated(strategy: str) -> None:
    evaluator, begun = FakeEvaluator(), []

    class Watched:
        under_way = 0

        def start(self, text: str) -> None:
            self.under_way += 1
            begun.append((text, len(evaluator.evaluated)))

        def wait(self, limit_s: float | None) -> None:
            self.under_way = 0

    builds = Watched()
    check, evaluate = (lambda: builds.under_way), evaluator.evaluate
    evaluator.evaluate = lambda text, _: evaluate(text) if not check() else pytest.fail("evaluated beside a build")
    run(evaluator, AnsweringLLM(improving), strategy=strategy, rounds=5, prebuilds=builds)
    built = {text for text, _ in begun}
    candidates = [data["source"] for data in evaluator.data("candidate")]
    assert built == set(candidates) and len(built) == len(begun), "each of them once"
    for place, text in enumerate(candidates):
        done = next(count for built_text, count in begun if built_text == text)
        assert done <= place, "its build began no later than its turn came"
    assert {done for _, done in begun[:3]} == {0}
    count = len(begun)
    resume_state = resume_state_from_events(evaluator.events)
    run(FakeEvaluator(), AnsweringLLM(improving), resume_state, strategy=strategy, rounds=5, prebuilds=builds)
    assert len(begun) == count, "what an earlier run evaluated is not built"


def test_the_second_way_on_is_told_of_the_first() -> None:
    evaluator, llm = FakeEvaluator(), AnsweringLLM(improving)
    run(evaluator, llm, strategy="tree", rounds=7)
    told = [prompt[1].content for prompt in llm.prompts if "Another branch tries" in prompt[1].content]
    assert told and all('"verdict": "under way"' in text for text in told)


def test_a_branch_that_fails_loses_none_of_the_others() -> None:
    def answer(sections: dict[str, str], messages: Sequence[Message]) -> str | LLMError:
        if "fewest bytes" in sections.get("note", ""):
            return LLMFailed("openai/coder", "the provider failed")
        return improving(sections, messages)

    evaluator = FakeEvaluator()
    result = run(evaluator, AnsweringLLM(answer), strategy="tree")
    assert (result.stop_reason, result.rounds_done) == (StopReason.LLM_ERROR, 2)
    assert result.best is not None


def test_a_sandbox_that_fails_ends_the_job_at_once_and_resume_goes_on_from_there() -> None:
    class Failing(FakeEvaluator):
        def evaluate(self, text: str, champion: str | None = None) -> Outcome:
            if len(self.evaluated) == 1 and isinstance(self.broken, bool):
                self.evaluated.append(-1.0)
                return Outcome(candidate_hash(text), "sandbox_error", None, "no room")
            return super().evaluate(text)

        broken: bool | None = True

    evaluator, llm = Failing(), AnsweringLLM(improving)
    result = run(evaluator, llm, strategy="tree", rounds=7)
    assert (result.stop_reason, result.rounds_done) == (StopReason.SANDBOX_ERROR, 2)
    asked = len(llm.prompts)
    whole = FakeEvaluator()
    expected = run(whole, AnsweringLLM(improving), strategy="tree", rounds=7)
    again, mended = AnsweringLLM(improving), FakeEvaluator()
    found = run(mended, again, resume_state_from_events(evaluator.events), strategy="tree", rounds=7)
    assert (found.best_source, found.rounds_done) == (expected.best_source, 7)
    calls = sum(event.kind == "llm_call" for event in whole.events)
    assert len(again.prompts) == calls - asked, "the openings were paid for"


def test_tree_ends_when_the_judge_sees_nothing_on_any_branch() -> None:
    def answer(sections: dict[str, str], messages: Sequence[Message]) -> str:
        return advice("none", stop=True) if "judge" in sections["request"] else improving(sections, messages)

    result = run(FakeEvaluator(), AnsweringLLM(answer), strategy="tree")
    assert (result.stop_reason, result.rounds_done) == (StopReason.JUDGE, 3)


def test_a_branch_that_the_judge_ends_leaves_a_gap_in_the_numbers_and_the_rules_count_on() -> None:
    def answer(sections: dict[str, str], messages: Sequence[Message]) -> str:
        ended = "judge" in sections["request"] and repr(FIRST_NOTES[0]) in sections.get("candidate", "")
        return advice("none", stop=True) if ended else improving(sections, messages)

    evaluator = FakeEvaluator()
    result = run(evaluator, AnsweringLLM(answer), strategy="tree", rounds=7, plateau_rounds=4)
    numbers = [event.round for event in evaluator.events if event.kind == "evaluated"]
    assert numbers != list(range(1, len(numbers) + 1)), "there is a gap"
    assert (result.stop_reason, result.rounds_done) == (StopReason.ROUNDS, 7)
    assert result.best is not None and result.best.speedup == max(evaluator.evaluated)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=10))
def test_the_best_is_always_taken_further(speeds: list[float]) -> None:
    rounds = rounds_of(*(round(speed, 1) for speed in speeds))
    kept = choose_beam(rounds, frozenset())
    assert 1 <= len(kept) <= 2
    passed = [entry.outcome.speedup for entry in rounds if entry.outcome and entry.outcome.passed]
    if passed:
        assert kept[0].outcome.speedup == max(filter(None, passed))
    else:
        assert [candidate.round for candidate in kept] == [entry.number for entry in rounds][-2:]


def test_of_two_equally_fast_the_one_that_differs_more_is_kept() -> None:
    texts = [
        source(3.0, "    a = 1\n    b = 2\n"),
        source(2.9, "    a = 1\n    b = 2\n"),
        "class ModelNew:\n    c = 9\n",
    ]
    outcomes = [
        Outcome(candidate_hash(text), "passed", speedup=speed)
        for text, speed in zip(texts, (3, 2.9, 2.8), strict=False)
    ]
    rounds = tuple(
        Round(number, "", text, outcome) for number, (text, outcome) in enumerate(zip(texts, outcomes, strict=False), 1)
    )
    assert [candidate.round for candidate in choose_beam(rounds, frozenset())] == [1, 3]


# tools


def called(*calls: tuple[str, object], text: str = "") -> Reply:
    made = tuple(
        ToolCall(f"call{index}", name, value if isinstance(value, str) else json.dumps(value))
        for index, (name, value) in enumerate(calls)
    )
    return Reply(text, "openai/coder", 100, 10, 0.01, 0.0, tool_calls=made)


def answers(llm: ScriptedLLM, index: int = -1) -> list[str]:
    return [message.content for message in llm.prompts[index] if message.role == "tool"]


def test_tools_read_evaluate_and_submit() -> None:
    wrong, good = {"source": source(0)}, {"source": source(2.0)}
    script = [
        called(("read_reference", {})),
        called(("evaluate", wrong), ("evaluate", wrong)),
        called(("evaluate", good)),
        called(("submit", good)),
    ]
    llm, evaluator = ScriptedLLM([*script]), FakeEvaluator()
    result = run(evaluator, llm, strategy="tools")
    assert (result.stop_reason, result.rounds_done, evaluator.evaluated) == (StopReason.SUBMITTED, 2, [0.0, 2.0])
    assert result.best is not None and result.best.speedup == 2.0
    told = answers(llm)
    assert told[0] == SPEC.task_source
    assert json.loads(told[1])["message"] == "row 3 differs"
    assert json.loads(told[1])["verdict"] == "wrong_output"
    assert told[2] == told[1], "the same file is evaluated once"
    assert json.loads(told[3])["speedup"] == 2.0
    assert json.loads(told[3])["latency_ms"] == {"eager": 4.0, "candidate": 2.0}
    assert "reference" not in llm.prompts[0][1].content.split("<platform>")[0]


def test_submitting_a_wrong_candidate_does_not_end_the_job() -> None:
    script = [called(("submit", {"source": source(0)})), called(("submit", {"source": source(1.5)}))]
    result = run(FakeEvaluator(), ScriptedLLM([*script]), strategy="tools")
    assert (result.stop_reason, result.rounds_done) == (StopReason.SUBMITTED, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("rm", {}), "there is no tool 'rm'; there are: read_reference, evaluate"),
        (("evaluate", "{"), "not valid JSON"),
        (("evaluate", "[" * 100_000), "not valid JSON"),
        (("evaluate", []), "needs the argument 'source'"),
        (("evaluate", {"source": 3}), "needs the argument 'source'"),
        (("evaluate", {"source": "import os"}), "no top-level class named ModelNew"),
        (("submit", {"source": "("}), "not valid Python"),
    ],
)
def test_calls_that_make_no_sense_are_answered_with_the_reason(call: tuple[str, object], words: str) -> None:
    llm = ScriptedLLM([called(call), called(("submit", {"source": source(1.5)}))])
    evaluator = FakeEvaluator()
    assert run(evaluator, llm, strategy="tools").stop_reason == StopReason.SUBMITTED
    assert words in answers(llm)[0]
    assert words in str(evaluator.data("reply_rejected")[0]["reason"])


def test_a_model_that_calls_no_tools_is_reminded_and_then_left() -> None:
    llm = ScriptedLLM(["I would fuse it."] * 3)
    result = run(FakeEvaluator(), llm, strategy="tools")
    assert (result.stop_reason, result.stop_detail) == (StopReason.LLM_ERROR, "openai/coder calls no tools")


def test_a_file_in_plain_words_is_evaluated_and_handed_in_by_repeating_it() -> None:
    llm = ScriptedLLM([fenced(source(1.5)), fenced(source(1.5))])
    result = run(FakeEvaluator(), llm, strategy="tools")
    assert (result.stop_reason, result.rounds_done) == (StopReason.SUBMITTED, 1)


def test_a_model_that_never_ends_is_ended() -> None:
    llm = ScriptedLLM([called(("read_reference", {}))] * 100)
    result = run(FakeEvaluator(), llm, strategy="tools", rounds=2)
    assert (result.stop_reason, result.rounds_done) == (StopReason.ROUNDS, 0)
    assert len(llm.prompts) == 18


def test_an_evaluation_says_where_the_time_goes() -> None:
    outcome = Outcome("h", "passed", speedup=2.0, roofline_fraction=0.5, profile_text="41 % of the time in mul_rows")
    text = evaluation_result(outcome)
    assert '"roofline_fraction": 0.5' in text
    assert text.endswith("Profile:\n41 % of the time in mul_rows")


def test_each_tool_has_a_schema_and_reads_only_what_it_may() -> None:
    failed = Outcome("h", "build_failed", None, "no such file", "x" * 50_000)
    passed = Outcome("h", "passed", None, profile_text="x" * 50_000)
    assert all(tool.parameters["type"] == "object" for tool in TOOLS)
    assert len(evaluation_result(failed)) < 8_000
    assert len(evaluation_result(passed)) < 8_000
    with pytest.raises(ToolError):
        parse_call(ToolCall("1", "x" * 1000, "{}"))


def test_a_job_of_a_version_with_other_tools_is_asked_anew_and_what_it_spent_stays_counted() -> None:
    before = FakeEvaluator()
    run(before, script_for("tools"), strategy="tools")
    events = [
        replace(event, data={**event.data, "key": f"{event.data['key']}-old"}) if "key" in event.data else event
        for event in before.events
    ]
    again, llm = FakeEvaluator(), script_for("tools")
    result = run(again, llm, resume_state_from_events(events), strategy="tools", budget=Budget(evaluations=6))
    assert result.stop_reason == StopReason.SUBMITTED
    assert len(llm.prompts) == 5
    assert result.spent.cost_usd == pytest.approx(0.1), "both runs"
    assert result.spent.evaluations == 5, "files that were evaluated count once"


# all of them


@pytest.mark.parametrize("strategy", ["judge", "sample", "contrastive", "tree"])
def test_seed_is_round_one_and_what_the_others_build_on(strategy: str) -> None:
    models: list[str] = []

    class Watched(AnsweringLLM):
        def complete(self, model: str, *args: object, **more: object) -> Reply:  # type: ignore[override]
            models.append(model)
            return super().complete(model, *args, **more)  # type: ignore[arg-type]

    evaluator, llm = FakeEvaluator(), Watched(improving)
    result = run(evaluator, llm, strategy=strategy, seed="compiler", rounds=3)
    assert models[0] == "builtin/compiler" and set(models[1:]) == {"openai/coder"}
    assert result.rounds_done == 3
    requests = {data["request"] for data in evaluator.data("round_started")[1:]}
    assert requests == ({"contrast"} if strategy == "contrastive" else {"improve"})


def script_for(strategy: str) -> AnsweringLLM:
    def by_turn(sections: dict[str, str], messages: Sequence[Message]) -> str | Reply:
        if strategy != "tools":
            return improving(sections, messages)
        turn = sum(message.role == "assistant" for message in messages)
        name = "submit" if turn == 4 else "evaluate"
        return called((name, {"source": source(1 + turn / 2)}))

    return AnsweringLLM(by_turn)


@pytest.mark.parametrize("strategy", ["judge", "sample", "contrastive", "tree", "tools"])
def test_cut_off_anywhere_every_strategy_comes_to_the_same_and_asks_nothing_twice(strategy: str) -> None:
    whole, asked = FakeEvaluator(), script_for(strategy)
    expected = run(whole, asked, strategy=strategy)
    for length in range(0, len(whole.events), 3):
        events = whole.events[:length]
        replied = sum(event.kind == "llm_call" for event in events)
        llm, evaluator = script_for(strategy), FakeEvaluator()
        result = run(evaluator, llm, resume_state_from_events(events), strategy=strategy)
        assert (result.best_source, result.rounds_done) == (expected.best_source, expected.rounds_done)
        assert result.stop_reason == expected.stop_reason
        assert len(llm.prompts) == len(asked.prompts) - replied, f"cut off after {length} events"
        assert result.spent.cost_usd == pytest.approx(expected.spent.cost_usd)


def test_lessons_last_for_the_job_and_are_told_once() -> None:
    def answer(sections: dict[str, str], messages: Sequence[Message]) -> str:
        if "judge" in sections["request"]:
            return advice("fuse", lessons=[{"kind": "avoid", "text": "false sharing"}])
        return improving(sections, messages)

    llm = AnsweringLLM(answer)
    run(FakeEvaluator(), llm, rounds=4)
    for prompt in llm.prompts[2:]:
        assert prompt[1].content.count("- avoid: false sharing") == 1


def test_only_so_many_lessons_are_kept_the_latest() -> None:
    rounds = [
        Round(number, "", advice=Advice(bottleneck="b", change="c", lessons=(Lesson(kind="try", text=f"t{number}"),)))
        for number in range(30)
    ]
    assert [lesson.text for lesson in lessons_of([*rounds, rounds[20]])][-2:] == ["t29", "t20"]
    assert len(lessons_of(rounds)) == 12

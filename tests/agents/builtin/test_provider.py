"""The built-in model as a chat model: requests, advice, hostile ops, replies through LiteLLM."""

import asyncio
import json
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.builtin.advisor import JudgeInput, advise
from agents.builtin.analysis.cost import Prediction
from agents.builtin.candidate_file import HEADER, without_runtime
from agents.builtin.catalog import PLAIN, VARIATIONS, format_names, in_order, parse_names
from agents.builtin.compiler import Compiler, first_names, is_fallback, read_variations
from agents.builtin.errors import CodegenFailed
from agents.builtin.generated import read_generated
from agents.builtin.provider import ABOUT, MODEL, CompilerLLM
from agents.llm.budget import Budget, BudgetAccount
from agents.llm.client import open_llm
from agents.llm.ledger import Ledger
from agents.llm.models import import_litellm, register_provider
from agents.prompting.parse import ReplyError, extract_advice, extract_candidate
from agents.prompting.sections import render
from agents.protocols import NOTHING_SPENT, Event, LLMCancelled, Message
from agents.replay import resume_state_from_events
from sandbox.base import Command, Completed, Limits, SandboxUnavailable
from sandbox.process.sandbox import ProcessSandbox
from tasks.suites import load_suite

# They share one model, which keeps what it has generated.
pytestmark = pytest.mark.xdist_group("builtin_provider")

OP = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)

def get_inputs():
    return [torch.randn(2, 8, 512, 256)]

def get_init_inputs():
    return []
"""
PASSED = {"verdict": "passed", "speedup": 2.0, "roofline_bound": "memory", "roofline_fraction": 0.4}


class CannedSandbox:
    """A sandbox whose commands all end the same way."""

    name = "canned"
    promises: frozenset[Any] = frozenset()

    def prepare(self, command: Command) -> None:
        pass

    def __init__(self, completed: Completed | Exception) -> None:
        self.completed = completed
        self.commands: list[Command] = []

    def run(self, command: Command, *, on_stderr: Any = None, cancel: Any = None) -> Completed:
        self.commands.append(command)
        if isinstance(self.completed, Exception):
            raise self.completed
        return self.completed

    def describe(self) -> dict[str, str]:
        return {}


def ended(stdout: bytes = b"", exit_code: int | None = 0, **more: Any) -> Completed:
    return Completed(exit_code, stdout, b"Killed by its own hand\n", 0.1, **more)


def message(request: str, reference: str = OP, **sections: Any) -> list[dict[str, str]]:
    bodies = {name: body if isinstance(body, str) else json.dumps(body) for name, body in sections.items()}
    text = render({"request": request, "reference": reference, **bodies})
    return [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": text + "\n\nGo on."}]


@pytest.fixture(scope="module")
def model(process_sandbox: ProcessSandbox) -> CompilerLLM:
    return CompilerLLM(Compiler(process_sandbox))


@pytest.fixture
def ask(model: CompilerLLM) -> Callable[..., Any]:
    litellm = import_litellm()
    register_provider(litellm, "builtin", model)
    return lambda messages: litellm.completion(model=MODEL, messages=messages)


def test_the_rounds_of_a_job_through_litellm(ask: Callable[..., Any]) -> None:
    reply = ask(message("write"))
    first = extract_candidate(reply.choices[0].message.content)
    assert read_variations(first) == ()
    assert "not a language model" in ABOUT and "compiler search" in reply.choices[0].message.content
    assert reply.usage.total_tokens == 0, "a compiler has no tokens"
    history: list[dict[str, Any]] = [{"round": 1, "verdict": "passed", "speedup": 2.0, "change": "first candidate"}]
    candidates = [first]
    for _ in range(len(VARIATIONS) + 1):
        asked = message("judge-improve", candidate=first, evaluation=PASSED, history=history)
        advice = extract_advice(ask(asked).choices[0].message.content)
        if advice.stop:
            break
        names = parse_names(advice.change)
        assert names is not None and len(names) == 1
        improved = extract_candidate(
            ask(message("improve", candidate=first, advice=advice.to_json())).choices[0].message.content
        )
        assert read_variations(improved) == names
        assert improved.partition("\n")[2] not in [other.partition("\n")[2] for other in candidates]
        candidates.append(improved)
        history.append({"round": len(candidates), "verdict": "passed", "speedup": 1.9, "change": advice.change})
    else:
        pytest.fail("the Judge never stopped")
    assert len(candidates) >= 3
    assert "has been tried" in advice.bottleneck


def test_the_asynchronous_way_answers_too(model: CompilerLLM) -> None:
    litellm = import_litellm()
    register_provider(litellm, "builtin", model)
    reply = asyncio.run(litellm.acompletion(model=MODEL, messages=message("write")))
    assert "class ModelNew" in reply.choices[0].message.content


def test_helped_variations_are_kept_and_others_left(model: CompilerLLM) -> None:
    base = extract_candidate(model.answer(message("improve", advice={"change": "contract: because it helped"})))
    assert read_variations(base) == ("contract",)
    asked = message("judge-improve", candidate=base, evaluation=PASSED, history=[{"change": "fuse-rows: tried"}])
    names = parse_names(extract_advice(model.answer(asked)).change)
    assert names is not None and "contract" in names and "fuse-rows" not in names


def test_advice_in_another_language_is_answered_with_a_variation_of_its_own(model: CompilerLLM) -> None:
    first = extract_candidate(model.answer(message("write")))
    advice = {"change": "Tile the loops and vectorise them.", "bottleneck": "memory"}
    asked = message("improve", candidate=first, evaluation=PASSED, advice=advice)
    assert read_variations(extract_candidate(model.answer(asked))) not in (None, ())


def test_a_failed_variation_is_dropped_for_another_one(model: CompilerLLM) -> None:
    best = extract_candidate(model.answer(message("write")))
    failed = extract_candidate(model.answer(message("improve", advice={"change": "fuse-rows: try"})))
    evaluation = {"verdict": "wrong_output", "message": "values differ"}
    history = [{"change": "fuse-rows: try", "verdict": "wrong_output"}]
    asked = message("judge-repair", candidate=failed, best=best, evaluation=evaluation, history=history)
    advice = extract_advice(model.answer(asked))
    names = parse_names(advice.change)
    assert names and "fuse-rows" not in names and not advice.stop
    assert "wrong_output" in advice.bottleneck


def test_kernels_that_fail_as_generated_leave_the_op_to_torch_compile(model: CompilerLLM) -> None:
    first = extract_candidate(model.answer(message("write")))
    asked = message("judge-repair", candidate=first, evaluation={"verdict": "build_failed", "message": "g++"})
    advice = extract_advice(model.answer(asked))
    last = extract_candidate(model.answer(message("repair", candidate=first, advice=advice.to_json())))
    assert is_fallback(last) and "torch.compile does everything" in last
    final = extract_advice(
        model.answer(message("judge-repair", candidate=last, evaluation={"verdict": "timed_out", "message": ""}))
    )
    assert final.stop


def test_lessons_of_earlier_jobs_reach_both_roles_and_broken_ones_change_nothing(model: CompilerLLM) -> None:
    told = [{"feature": "contract", "bound": "memory", "times_as_fast": 1.4}]
    first = extract_candidate(model.answer(message("write", known_lessons=told)))
    assert read_variations(first) == ("contract",)
    plain = extract_candidate(model.answer(message("write", known_lessons="[1, {")))
    assert read_variations(plain) == ()
    asked = message("judge-improve", candidate=plain, evaluation=PASSED, history=[], known_lessons=told)
    assert parse_names(extract_advice(model.answer(asked)).change) == ("contract",)


def test_a_candidate_is_shown_to_others_without_its_runtime(model: CompilerLLM) -> None:
    whole = extract_candidate(model.answer(message("write")))
    shown = without_runtime(whole)
    assert "lines are left out" in shown and len(shown) < len(whole) / 2
    assert "using namespace at::vec;" in shown and shown.count('extern "C" void') == whole.count('extern "C" void')
    assert without_runtime("class ModelNew: pass") == "class ModelNew: pass"
    assert without_runtime("#define KW_VEC_BYTES 32\n") == "#define KW_VEC_BYTES 32\n"


def test_near_the_limit_the_judge_stops() -> None:
    evaluation = {**PASSED, "roofline_fraction": 0.97}
    advice = advise(JudgeInput(False, "", None, evaluation, []), lambda base, name: Prediction(2.0, 1.0))
    assert advice["stop"] and "97%" in advice["bottleneck"]
    assert set(advice) == {"bottleneck", "evidence", "change", "expected_speedup", "stop"}


@pytest.mark.parametrize("wanted", [variation.name for variation in VARIATIONS if not variation.for_short_calls])
def test_the_variation_comes_first_whose_code_should_be_fastest(wanted: str) -> None:
    def predict(base: tuple[str, ...], name: str) -> Prediction:
        return Prediction(0.001, 0.0005 if name == wanted else 0.0007)

    advice = advise(JudgeInput(False, "", None, {**PASSED, "latency_ms": {"candidate": 1.5}}, []), predict)
    assert parse_names(advice["change"]) == (wanted,)
    assert advice["expected_speedup"] == pytest.approx(1.5, rel=0.03)  # 0.5 of the 1.5 ms are gained
    assert "with " + wanted in advice["bottleneck"]


@pytest.mark.parametrize(("latency_ms", "place"), [(0.03, "first"), (0.09, "first"), (0.5, "last"), (1.0, None)])
def test_one_thread_is_tried_first_for_short_calls_and_never_for_long_ones(
    latency_ms: float, place: str | None
) -> None:
    def predict(base: tuple[str, ...], name: str) -> Prediction:
        return Prediction(1e-5, 1e-5 if name == "one-thread" else 5e-6)

    evaluation = {**PASSED, "latency_ms": {"candidate": latency_ms}}
    history: list[dict[str, Any]] = []
    order: list[str] = []
    while not (advice := advise(JudgeInput(False, "", None, evaluation, history), predict))["stop"]:
        order += parse_names(advice["change"]) or ()
        history.append({"change": advice["change"]})
    position = order.index("one-thread") if "one-thread" in order else None
    assert position == {"first": 0, "last": len(order) - 1, None: None}[place]
    assert len(order) >= len(VARIATIONS) - 1


def test_a_variation_that_should_make_the_call_slower_is_not_advised() -> None:
    advice = advise(JudgeInput(False, "", None, PASSED, []), lambda base, name: Prediction(0.001, 0.002))
    assert advice["stop"]


def test_a_variation_without_effect_is_not_advised() -> None:
    def predict(base: tuple[str, ...], name: str) -> Prediction | None:
        return Prediction(1.0, 1.0) if name == "contract" else None

    advice = advise(JudgeInput(False, "", None, PASSED, []), predict)
    assert parse_names(advice["change"]) == ("contract",)


NAMES = [each.name for each in VARIATIONS if not (each.for_short_calls or each.from_the_start)]


def tried(change: str, over_best: str | None = None, verdict: str = "passed") -> dict[str, Any]:
    """A round as prompts show it."""
    entry: dict[str, Any] = {"verdict": verdict, "change": change}
    return entry if over_best is None else {**entry, "over_best_so_far": over_best}


def advised(
    base: str,
    history: list[dict[str, Any]],
    estimates: dict[str, float] | None = None,
    known: dict[str, float] | None = None,
) -> str:
    """The set of variations that is advised for a candidate; `estimates`: the gains that its code promises; `known`:
    what variations gained in earlier jobs.
    """

    def predict(has: tuple[str, ...], name: str) -> Prediction | None:
        gain = (estimates or dict.fromkeys(NAMES, 1.0)).get(name)
        return None if gain is None else Prediction(1.0, 1.0 / gain)

    candidate = HEADER + json.dumps({"variations": parse_names(base)}) + "\n"
    known = known or {}
    advice = advise(JudgeInput(False, candidate, None, PASSED, history, known, known), predict)
    return "stop" if advice["stop"] else str(advice["change"]).partition(":")[0]


def test_variations_that_won_separately_are_combined() -> None:
    history = [
        tried("first candidate"),
        tried("contract: x", "1.030 (open)"),
        tried("fuse-rows: y", "1.200 (better)"),
        tried("vector-loads: z", "0.700 (worse)"),
        tried("reciprocals: w", "0.840 (worse)"),  # beside fuse-rows: 1.008 times the first candidate
    ]
    assert advised("fuse-rows", history) == "fuse-rows+reciprocals+contract"


def test_what_the_first_candidate_has_is_in_all_that_it_is_compared_with() -> None:
    history = [
        tried("first candidate"),
        tried("winograd+contract: x", "1.030 (open)"),
        tried("winograd+fuse-rows: y", "1.200 (better)"),
    ]
    estimates = {"winograd": 2.0, "fuse-rows": 1.0, "contract": 1.0}
    assert advised("winograd+fuse-rows", history, estimates) == "winograd+fuse-rows+contract"


def test_of_a_first_candidate_that_failed_each_variation_is_tried_for_itself() -> None:
    failed = tried("first candidate", verdict="wrong_output")
    estimates = {"winograd": 2.0, "packed-products": 1.2}
    assert advised("plain", [failed, tried("plain: x")], estimates) == "winograd"
    wrong = [failed, tried("plain: x"), tried("winograd: y", verdict="wrong_output")]
    assert advised("plain", wrong, estimates) == "packed-products"
    assert advised("plain", [*wrong, tried("packed-products: z", "0.700 (worse)")], estimates) == "stop"


def test_what_was_there_from_the_start_is_left_out_once_where_it_should_hardly_help() -> None:
    first = tried("first candidate")
    assert advised("packed-products", [first], {"packed-products": 1.1}) == "plain"
    assert advised("packed-products", [first, tried("plain: x", "0.900 (worse)")], {"packed-products": 1.1}) == "stop"
    assert advised("packed-products", [first], {"packed-products": 1.4}) == "stop"


def test_the_first_candidate_has_what_fits_the_op_and_should_make_it_faster() -> None:
    gains = {"winograd": 0.9, "packed-products": 1.2, "fuse-rows": 2.0}
    assert first_names(lambda base, name: Prediction(1.0, 1.0 / gains[name]) if name in gains else None) == (
        "packed-products",
    )


def test_the_first_candidate_has_what_won_in_earlier_jobs_unless_its_code_contradicts_that() -> None:
    def names(gains: dict[str, float], known: dict[str, float]) -> tuple[str, ...]:
        return first_names(lambda base, name: Prediction(1.0, 1.0 / gains[name]) if name in gains else None, known)

    assert names({"fuse-rows": 1.0, "contract": 1.0}, {"fuse-rows": 1.3}) == ("fuse-rows",)
    assert names({"contract": 1.0}, {"fuse-rows": 1.3}) == (), "it does nothing for this op"
    assert names({"fuse-rows": 0.7}, {"fuse-rows": 1.3}) == ()
    assert names({"fuse-rows": 1.0}, {"fuse-rows": 1.01}) == ()
    assert names({"one-thread": 1.0}, {"one-thread": 3.0}) == (), "calls may be long"


def test_what_won_in_earlier_jobs_is_tried_before_what_the_code_promises() -> None:
    estimates = {"contract": 1.0, "fuse-rows": 1.2, "stream-stores": 0.7}
    first = [tried("first candidate")]
    assert advised("plain", first, estimates) == "fuse-rows"
    assert advised("plain", first, estimates, {"stream-stores": 1.3}) == "stream-stores"
    assert advised("plain", first, estimates, {"fuse-rows": 0.5}) == "contract"


def test_what_earlier_jobs_put_into_the_first_candidate_can_be_left_out_again() -> None:
    first = [tried("first candidate")]
    estimates = {"fuse-rows": 1.0}
    assert advised("fuse-rows", first, estimates) == "stop"
    assert advised("fuse-rows", first, estimates, {"fuse-rows": 1.1}) == "plain"
    assert advised("fuse-rows", first, estimates, {"fuse-rows": 1.5}) == "stop", "it won too much for that"


def test_a_first_candidate_that_fails_is_followed_by_the_kernels_as_they_are_generated() -> None:
    wrong = {"verdict": "wrong_output", "message": "off by 0.1"}
    first = HEADER + json.dumps({"variations": ["winograd"]}) + "\n"
    advice = advise(
        JudgeInput(True, first, None, wrong, [tried("first candidate", verdict="wrong_output")]), lambda *_: None
    )
    assert parse_names(advice["change"]) == ()


def test_what_promises_more_than_the_combination_is_tried_before_it() -> None:
    history = [
        tried("first candidate"),
        tried("contract: x", "1.030 (open)"),
        tried("fuse-rows: y", "1.200 (better)"),
    ]
    promising, poor = {"contract": 1.0, "own-scan": 1.5}, {"contract": 1.0, "own-scan": 1.01}
    assert advised("fuse-rows", history, promising) == "own-scan+fuse-rows"
    assert advised("fuse-rows", history, poor) == "fuse-rows+contract"


@pytest.mark.parametrize("result", [("1.010 (alike)", "passed"), ("0.900 (worse)", "passed"), (None, "crashed")])
def test_a_combination_is_tried_once(result: tuple[str | None, str]) -> None:
    history = [
        tried("first candidate"),
        tried("contract: x", "1.030 (open)"),
        tried("fuse-rows: y", "1.200 (better)"),
        tried("fuse-rows+contract: both", *result),
    ]
    assert advised("fuse-rows", history, {"contract": 1.0}) == "stop"


def test_what_gained_nothing_is_tried_once_more_on_another_base() -> None:
    estimates = {"contract": 1.0, "fuse-rows": 1.0, "own-scan": 1.0}
    history = [
        tried("first candidate"),
        tried("contract: x", "0.990 (alike)"),
        tried("own-scan: z", "0.500 (worse)"),
    ]
    assert advised("plain", history, {**estimates, "fuse-rows": 1.2}) == "fuse-rows"
    history.append(tried("fuse-rows: y", "1.200 (better)"))
    assert advised("fuse-rows", history, estimates) == "fuse-rows+contract", "what lost much is left"
    history.append(tried("fuse-rows+contract: x", "0.990 (alike)"))
    assert advised("fuse-rows", history, estimates) == "stop"


def test_nothing_is_tried_again_on_the_same_base_or_after_a_failure() -> None:
    estimates = {"contract": 1.0, "fuse-rows": 1.0}
    first = tried("first candidate")
    assert advised("plain", [first, tried("contract: x", "0.990 (alike)")], {"contract": 1.0}) == "stop"
    wrong = [first, tried("contract: x", verdict="wrong_output"), tried("fuse-rows: y", "1.200 (better)")]
    assert advised("fuse-rows", wrong, estimates) == "stop"


def test_a_winner_without_effect_on_the_base_is_not_combined() -> None:
    history = [tried("first candidate"), tried("contract: x", "1.030 (open)"), tried("fuse-rows: y", "1.200 (better)")]
    assert advised("fuse-rows", history, {"own-scan": 0.9}) == "own-scan+fuse-rows"


@given(st.lists(st.floats(0.8, 1.3), min_size=len(NAMES), max_size=len(NAMES)))
def test_a_search_ends_with_all_that_gain_and_tries_nothing_more_than_twice(factors: list[float]) -> None:
    gain_of = dict(zip(NAMES, factors, strict=True))
    history, best, best_speed = [tried("first candidate")], frozenset[str](), 1.0
    while (change := advised(format_names(in_order(best)), history)) != "stop":
        own = frozenset(parse_names(change) or ())
        speed = prod(gain_of[name] for name in own)
        ratio = speed / best_speed
        better = ratio > 1.02  # the test finds no smaller difference
        history.append(tried(f"{change}: x", f"{ratio:.3f} ({'better' if better else 'alike'})"))
        if better:
            best, best_speed = own, speed
    sets = [entry["change"] for entry in history]
    assert len(set(sets)) == len(sets), "no set is tried twice"
    assert all(sum(name in each for each in sets) <= 2 for name in NAMES if gain_of[name] < 1.0)
    assert {name for name in NAMES if gain_of[name] > 1.021} <= best
    assert prod(max(gain_of[name], 1.0) for name in NAMES) <= best_speed * 1.06, "small gains add up"


class CountingSandbox:
    """The process sandbox, with a count of what it ran."""

    name = "counting"
    promises: frozenset[Any] = frozenset()

    def __init__(self, inner: ProcessSandbox) -> None:
        self.inner = inner
        self.options: list[dict[str, Any]] = []

    def run(self, command: Command, *, on_stderr: Any = None, cancel: Any = None) -> Completed:
        self.options.append(json.loads(command.stdin or b"{}")["options"])
        return self.inner.run(command, on_stderr=on_stderr, cancel=cancel)

    def prepare(self, command: Command) -> None:
        self.inner.prepare(command)

    def describe(self) -> dict[str, str]:
        return self.inner.describe()


def test_kernels_for_other_options_are_generated_when_they_are_first_asked_for(process_sandbox: ProcessSandbox) -> None:
    sandbox = CountingSandbox(process_sandbox)
    model = CompilerLLM(Compiler(sandbox))
    first = extract_candidate(model.answer(message("write")))
    assert sandbox.options == [{}]
    model.answer(message("judge-improve", candidate=first, evaluation=PASSED, history=[]))
    assert sandbox.options == [{}], "nothing in this op's code speaks for other options"
    for _ in range(2):
        half = extract_candidate(model.answer(message("improve", advice={"change": "half-vectors: try"})))
    assert sandbox.options == [{}, {"kernelwright.half_vectors": True}]
    assert read_variations(half) == ("half-vectors",)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("mixed_pool", "vector-loads"), ("embedding_bag", "outer-vectors"), ("gelu_tanh", "stream-stores")],
)
def test_the_code_shows_what_helps_most(model: CompilerLLM, op: str, wanted: str) -> None:
    reference = next(task.source for task in load_suite("starter").tasks if task.name == op)
    first = extract_candidate(model.answer(message("write", reference)))
    asked = message("judge-improve", reference, candidate=first, evaluation=PASSED, history=[])
    assert parse_names(extract_advice(model.answer(asked)).change) == (wanted,)


@given(st.sets(st.sampled_from([variation.name for variation in VARIATIONS])))
def test_recipes_are_read_back(names: set[str]) -> None:
    ordered = tuple(variation.name for variation in VARIATIONS if variation.name in names)
    assert parse_names(format_names(ordered) + ": because") == ordered


@pytest.mark.parametrize("text", ["", "none", "use fuse-rows", "fuse-rows+unheard-of: x", "plainly: x"])
def test_other_texts_are_no_recipes(text: str) -> None:
    assert parse_names(text) is None
    assert parse_names(PLAIN + ": back") == ()


def test_small_talk_gets_an_honest_answer(model: CompilerLLM) -> None:
    assert model.answer([{"role": "user", "content": "Hello, who are you?"}]) == ABOUT
    assert model.answer([]) == ABOUT
    assert ABOUT in model.answer(message("sing"))


HOSTILE = {
    "raises": ("raise RuntimeError('no such luck')", "no such luck"),
    "exits": ("import os; os._exit(7)", "exit status 7"),
    "prints_forged_json": ("print('{\"ok\": true}'); import sys; sys.exit(3)", "SystemExit"),
    "forges_on_every_descriptor": (
        'import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b\'{"ok": true, "text": [1]}\')\n'
        "    except OSError:\n        pass\nos._exit(0)",
        "unreadable result",
    ),
    "loops": ("while True: pass", "did not finish within"),
    "has_no_model": ("del Model", "Model"),
    "wants_too_much": ("def get_inputs():\n    return [torch.empty(1 << 44)]", "inputs"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_ops_get_a_clear_answer(process_sandbox: ProcessSandbox, name: str) -> None:
    code, wanted = HOSTILE[name]
    model = CompilerLLM(Compiler(process_sandbox, Limits(wall_s=6.0 if name == "loops" else 60.0, memory_mb=4096)))
    reply = model.answer(message("write", OP + "\n" + code + "\n"))
    assert reply.startswith(f"{MODEL} could not generate kernels") and wanted in reply
    with pytest.raises(ReplyError):
        extract_candidate(reply)
    assert model.answer(message("write", OP + "\n" + code + "\n")) == reply


@pytest.mark.parametrize(
    ("completed", "wanted"),
    [
        (ended(exit_code=None, timed_out=True), "did not finish"),
        (ended(exit_code=None, out_of_memory=True), "needs more than"),
        (ended(exit_code=1), "by its own hand"),
        (ended(b"{}"), "unreadable"),
        (ended(b"{", output_truncated=True), "ended the process"),
    ],
)
def test_whatever_the_sandbox_says_is_told(completed: Completed, wanted: str) -> None:
    sandbox = CannedSandbox(completed)
    model = CompilerLLM(Compiler(sandbox))
    assert wanted in model.answer(message("write"))
    model.answer(message("write"))
    assert len(sandbox.commands) == 1, "a failure is remembered like a success"


def test_a_missing_sandbox_is_an_error_and_not_an_answer() -> None:
    model = CompilerLLM(Compiler(CannedSandbox(SandboxUnavailable("No Docker.", "Start it."))))
    with pytest.raises(SandboxUnavailable):
        model.answer(message("write"))


def test_untranslatable_modules_become_honest_fallbacks() -> None:
    result = {
        "ok": True, "torch": "2.13.0", "text": "def call(self, args):\n    import os\n", "inputs": [], "outputs": [],
        "arguments": ["tuple", []], "result": ["tuple", []], "training": True, "vector_bytes": 64,
        "threads": 2,
    }  # fmt: skip
    model = CompilerLLM(Compiler(CannedSandbox(ended(json.dumps(result).encode()))))
    reply = model.answer(message("write"))
    assert is_fallback(extract_candidate(reply)) and "only torch.compile" in reply


FORGED_LOOPS = {
    "never_steps": "for(int64_t x0=0L; x0<9L; x0+=0L)\n{\nout_ptr0[(x0)] = 1;\n}",
    "numbers_without_end": "#pragma omp for\nfor(int64_t x0=0L; x0<" + "9" * 5000 + "L; x0+=1L)\n{\na;\n}",
    "a_thousand_deep": "{\n" * 3000 + "}\n" * 3000,
    "braces": "}\n{",
}


def ask_about_forged(text: str, inputs: list[dict[str, Any]], change: str) -> None:
    """Ask for a candidate, for advice and for a change, where this text is what was generated."""
    result = {
        "ok": True, "torch": "2.13.0", "text": text, "inputs": inputs, "outputs": [{"kind": "computed"}],
        "arguments": ["tuple", []], "result": ["leaf"], "training": True, "vector_bytes": 64, "threads": 2,
    }  # fmt: skip
    model = CompilerLLM(Compiler(CannedSandbox(ended(json.dumps(result).encode()))))
    first = extract_candidate(model.answer(message("write")))
    advice = extract_advice(model.answer(message("judge-improve", candidate=first, evaluation=PASSED, history=[])))
    varied = model.answer(message("improve", advice={"change": f"{change}: try"}))
    assert advice.stop or parse_names(advice.change) is not None
    assert "class ModelNew" in varied or "could not generate" in varied


@pytest.mark.parametrize("name", FORGED_LOOPS)
def test_forged_kernels_are_refused_and_never_an_error_of_ours(name: str) -> None:
    source = f'extern "C" void kernel(float* out_ptr0)\n{{\n{FORGED_LOOPS[name]}\n}}'
    text = (
        f"k = async_compile.cpp_pybinding(['float*'], {source!r})\n"
        "def call(self, args):\n    args = args\n    buf0 = empty_strided_cpu((9,), (1,), torch.float32)\n    k(buf0)\n"
        "    return (buf0,)\n"
    ).replace("args = args\n", "() = args\n")
    ask_about_forged(text, [], "unroll-sums+free-schedule+one-thread")


CONVOLVED = "stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1"
NINES = "9" * 5000
FORGED_CALLS = {
    "a convolution whose result has no name": f"extern_kernels.convolution(buf0, arg0_1, {CONVOLVED})",
    "a convolution of nothing": f"buf1 = extern_kernels.convolution({CONVOLVED})",
    "a convolution of a tuple": f"buf1, buf2 = extern_kernels.convolution(buf0, arg0_1, {CONVOLVED})",
    "ours with less than no padding": "buf1 = extern_kernels.winograd(buf0, arg0_1, padding=(0, -1))",
    "ours with padding that is no number": "buf1 = extern_kernels.winograd(buf0, arg0_1, padding=('a', None))",
    "ours with operands that do not fit": "buf1 = extern_kernels.winograd(buf0, arg0_1, padding=(1, 1))\n"
    "    assert_size_stride(buf1, (1, 16, 9, 9), (1296, 1, 144, 16))",
    "ours with operands that are not known": "buf1 = extern_kernels.winograd(-buf0, buf0 + 1, padding=(1, 1))",
    "a product backwards": "extern_kernels.mm(reinterpret_tensor(buf0, (3, 16), (-5, 1), 0), arg1_1, out=buf0)",
    "a product of shapes without sides": "extern_kernels.mm(reinterpret_tensor(buf0, (), (), 0), arg1_1, out=buf0)",
    "a product of sizes without end": f"extern_kernels.mm(buf0, reinterpret_tensor(arg1_1, ({NINES}, 16), (1, 1), 0))",
    "a product of what is in a list": "extern_kernels.addmm(*[buf0, buf0, arg1_1], out=buf0)",
    "what is kept of nothing": "buf1 = kernelwright_prepared()",
    "what is kept of a number": "buf1 = kernelwright_prepared(self, 'key', arg0_1, (1,), 5)",
    "an operand that is deep": f"extern_kernels.mm(buf0, arg1_1, out={'-' * 90}buf0)",
}


@pytest.mark.parametrize("name", FORGED_CALLS)
def test_forged_calls_are_refused_and_never_an_error_of_ours(name: str) -> None:
    source = 'extern "C" void kernel(float* out_ptr0)\n{\nout_ptr0[0L] = 1;\n}'
    text = (
        f"k = async_compile.cpp_pybinding(['float*'], {source!r})\n"
        "def call(self, args):\n    arg0_1, arg1_1 = args\n"
        "    buf0 = empty_strided_cpu((16, 16), (16, 1), torch.float32)\n    k(buf0)\n"
        f"    {FORGED_CALLS[name]}\n    return (buf0,)\n"
    )
    weights = [
        {"kind": "parameter", "name": each, "shape": shape, "stride": stride, "dtype": "float32"}
        for each, shape, stride in (("a", [16, 16, 3, 3], [144, 9, 3, 1]), ("b", [16, 16], [16, 1]))
    ]
    ask_about_forged(text, weights, "winograd+packed-products")


@pytest.mark.parametrize(
    "request_of_role",
    [
        message("write"),
        message("improve", advice={"change": "contract: try"}),
        message("judge-improve", candidate="x", evaluation=PASSED, history=[]),
    ],
    ids=["write", "improve", "judge"],
)
def test_a_cancelled_generation_is_no_reply_and_is_made_again(request_of_role: list[dict[str, str]]) -> None:
    sandbox = CannedSandbox(ended(exit_code=None, cancelled=True))
    events: list[Event] = []
    account = BudgetAccount(Budget(), NOTHING_SPENT)
    ledger = Ledger(open_llm(builtin=CompilerLLM(Compiler(sandbox))), events.append, lambda: False, account)
    asked = [Message(entry["role"], entry["content"]) for entry in request_of_role]
    for _ in range(2):  # the first failure is not kept either
        with pytest.raises(LLMCancelled):
            ledger.ask("1/coder/0", MODEL, asked, role="coder", purpose="write", round_number=1)
    assert [event.kind for event in events] == ["llm_started", "llm_failed"] * 2
    assert len(sandbox.commands) == 2
    assert resume_state_from_events(events).replies == {}


def test_calls_of_a_compiler_count_no_tokens() -> None:
    llm = open_llm(builtin=CompilerLLM(Compiler(CannedSandbox(ended()))))
    reply = llm.complete(MODEL, [Message("user", "Who are you?")], should_stop=lambda: False)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (ABOUT, 0, 0, 0.0)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ok", "text", "inputs"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_output_of_the_sandbox_is_read_or_refused(stdout: bytes) -> None:
    with pytest.raises(CodegenFailed):
        read_generated(stdout)

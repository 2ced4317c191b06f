"""The Judge's side of the built-in model: which variation to try next, from the evaluation and from the code."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.builtin.analysis.cost import Prediction
from agents.builtin.catalog import VARIATIONS, Variation, find, read_recipe, recipe_text
from agents.builtin.compiler import is_fallback, read_note

NEAR_LIMIT = 0.95  # of the roofline: nothing left to gain
SHORT_MS = 0.1  # a call below this is mostly the waking of threads
LONG_MS = 1.0  # a call from here on does not notice it
WORTHWHILE = 0.8  # a variation whose code should make the call slower than this is not tried: the estimate is rough
_BOUNDS = {"memory": "memory", "cache": "memory", "compute": "compute"}
FALLBACK_CHANGE = "torch-compile"

Predict = Callable[[tuple[str, ...], str], Prediction | None]
"""`predict(base, name)`: what the variation may do to the candidate with `base`; None where it changes nothing."""


@dataclass(frozen=True)
class Case:
    """What the Judge is asked about: the candidate, its evaluation, and what was tried before."""

    repair: bool
    candidate: str
    best: str | None
    evaluation: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Choice:
    """A variation to try, the gain to expect of it, and the estimate that this comes from."""

    variation: Variation
    gain: float
    estimate: str


def judge(case: Case, predict: Predict) -> dict[str, Any]:
    """Advice as the Judge's JSON.

    The text of `change` begins with the whole recipe of the next candidate, which the Coder's side reads.
    """
    evidence = _evidence(case.evaluation)
    if case.repair:
        return _repair(case, evidence, predict)
    base = read_note(case.candidate) or ()
    bound, fraction = _bound(case.evaluation)
    bottleneck = _bottleneck(bound, fraction)
    if is_fallback(case.candidate):
        return _stop(f"{bottleneck} It is torch.compile's own code, which this search does not vary.", evidence)
    if fraction is not None and fraction >= NEAR_LIMIT:
        return _stop(bottleneck, evidence)
    chosen = _next(base, case.history, _latency_ms(case.evaluation), predict)
    if chosen is None:
        return _stop(f"{bottleneck} Every variation that applies here has been tried.", evidence)
    names = (*base, chosen.variation.name)
    return _advice(f"{bottleneck} {chosen.estimate}", evidence, names, chosen.variation.sentence, chosen.gain)


def _repair(case: Case, evidence: list[str], predict: Predict) -> dict[str, Any]:
    verdict = str(case.evaluation.get("verdict", "failed"))
    message = str(case.evaluation.get("message", ""))[:300]
    bottleneck = f"The candidate failed: {verdict}. {message}".strip()
    base = read_note(case.best) if case.best is not None else ()
    failed = read_note(case.candidate) or ()
    if case.best is None and failed:
        return _advice(bottleneck, evidence, (), "Go back to the kernels as they were generated.", 1.0)
    if case.best is None:
        sentence = "The generated kernels do not work as they are; leave the op to torch.compile."
        return _stop(bottleneck, evidence) if is_fallback(case.candidate) else _fallback(bottleneck, evidence, sentence)
    chosen = _next(base or (), case.history, None, predict)
    if chosen is None:
        return _stop(f"{bottleneck} Nothing else is left to try.", evidence)
    dropped = ", ".join(name for name in failed if name not in (base or ()))
    sentence = f"Drop {dropped or 'the failed change'} and try another one: {chosen.variation.sentence}"
    names = (*(base or ()), chosen.variation.name)
    return _advice(f"{bottleneck} {chosen.estimate}", evidence, names, sentence, chosen.gain)


def _next(
    base: tuple[str, ...], history: Sequence[Mapping[str, Any]], latency_ms: float | None, predict: Predict
) -> Choice | None:
    """The variation with the greatest gain to expect among those not tried and not without effect."""
    tried = set(base)
    for entry in history:
        tried |= set(read_recipe(str(entry.get("change", ""))) or ())
    choices: list[Choice] = []
    for variation in VARIATIONS:
        if variation.name in tried or (variation.for_short_calls and (latency_ms or 0.0) >= LONG_MS):
            continue
        prediction = predict(base, variation.name)
        if prediction is None:
            continue
        gain = prediction.gain(latency_ms / 1000 if latency_ms is not None else None) * variation.unseen
        before, after = prediction.before_s * 1000, prediction.after_s * 1000
        estimate = f"By their code the kernels take {before:.3g} ms, with {variation.name} {after:.3g} ms."
        if gain >= WORTHWHILE or _is_urgent(variation, latency_ms):
            choices.append(Choice(variation, gain, estimate))
    return max(choices, key=lambda choice: (_is_urgent(choice.variation, latency_ms), choice.gain), default=None)


def _is_urgent(variation: Variation, latency_ms: float | None) -> bool:
    """Whether the measured call is so short that what this variation spares is most of it."""
    return variation.for_short_calls and latency_ms is not None and latency_ms < SHORT_MS


def _latency_ms(evaluation: Mapping[str, Any]) -> float | None:
    """The candidate's measured latency, if there is one."""
    latency = evaluation.get("latency_ms")
    value = latency.get("candidate") if isinstance(latency, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def _bound(evaluation: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """What limits the op in principle, and how much of that limit is reached."""
    bound = evaluation.get("roofline_bound")
    fraction = evaluation.get("roofline_fraction")
    return (
        _BOUNDS.get(str(bound)),
        float(fraction) if isinstance(fraction, (int, float)) and not isinstance(fraction, bool) else None,
    )


def _bottleneck(bound: str | None, fraction: float | None) -> str:
    what = {"memory": "memory traffic", "compute": "arithmetic"}.get(bound or "", "not known")
    if fraction is None:
        return f"The bottleneck is {what}."
    return f"The bottleneck is {what}; the candidate reaches {fraction:.0%} of that limit."


def _evidence(evaluation: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    latency = evaluation.get("latency_ms")
    if isinstance(latency, Mapping) and latency:
        figures = (
            f"latency_ms.{name} {value:.3f}" for name, value in latency.items() if isinstance(value, (int, float))
        )
        lines.append(", ".join(figures))
    for key, name in (("speedup", "speedup.eager"), ("speedup_compile", "speedup.compile")):
        if isinstance(evaluation.get(key), (int, float)):
            lines.append(f"{name} {evaluation[key]:.2f}")
    return lines


def _advice(bottleneck: str, evidence: list[str], names: Sequence[str], sentence: str, gain: float) -> dict[str, Any]:
    recipe = recipe_text(tuple(v.name for v in VARIATIONS if v.name in names))
    return {
        "bottleneck": bottleneck,
        "evidence": evidence,
        "change": f"{recipe}: {sentence}",
        "expected_speedup": gain,
        "stop": False,
    }


def _fallback(bottleneck: str, evidence: list[str], sentence: str) -> dict[str, Any]:
    return {**_advice(bottleneck, evidence, (), sentence, 1.0), "change": f"{FALLBACK_CHANGE}: {sentence}"}


def _stop(bottleneck: str, evidence: list[str]) -> dict[str, Any]:
    return {"bottleneck": bottleneck, "evidence": evidence, "change": "none", "expected_speedup": 1.0, "stop": True}


def explain(names: Sequence[str]) -> str:
    """What these variations do, one line each."""
    return (
        "\n".join(f"- {name}: {find(name).sentence}" for name in names) or "- the kernels as TorchInductor makes them"
    )


def encode(advice: Mapping[str, Any]) -> str:
    """The advice as a Judge's reply."""
    return f"```json\n{json.dumps(advice, ensure_ascii=False, indent=1)}\n```\n"

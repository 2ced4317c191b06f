"""The built-in model as Judge: it chooses the next variation from the evaluation and from estimates of the code."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.builtin.analysis.cost import Prediction
from agents.builtin.catalog import VARIATIONS, Variation, format_names, get_variation, parse_names
from agents.builtin.compiler import is_fallback, read_variations

NEAR_ROOFLINE = 0.95  # from this fraction of the limit on, nothing is left to gain
SHORT_CALL_MS = 0.1  # a shorter call mostly waits for threads to start
LONG_CALL_MS = 1.0  # in a longer call the start of threads does not matter
MIN_ESTIMATED_GAIN = 0.8  # below 1, because estimates are rough
_BOUNDS = {"memory": "memory", "cache": "memory", "compute": "compute"}
FALLBACK_CHANGE = "torch-compile"

Predict = Callable[[tuple[str, ...], str], Prediction | None]
"""`predict(base, name)`: the effect of a variation on the candidate with the variations `base`; None: it has none."""


@dataclass(frozen=True)
class JudgeInput:
    """What the Judge knows: the candidate, the best one, the evaluation, and the history of the job."""

    repair: bool
    candidate: str
    best: str | None
    evaluation: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Choice:
    """A variation to try, its expected gain (a factor), and a sentence with the estimates."""

    variation: Variation
    gain: float
    estimate: str


def advise(judged: JudgeInput, predict: Predict) -> dict[str, Any]:
    """The Judge's advice as JSON. Its `change` begins with all variations of the next candidate, for the Coder."""
    evidence = _evidence(judged.evaluation)
    if judged.repair:
        return _advise_repair(judged, evidence, predict)
    base = read_variations(judged.candidate) or ()
    bound, fraction = _bound(judged.evaluation)
    bottleneck = _bottleneck(bound, fraction)
    if is_fallback(judged.candidate):
        return _stop_advice(f"{bottleneck} It is torch.compile's own code, which this search does not vary.", evidence)
    if fraction is not None and fraction >= NEAR_ROOFLINE:
        return _stop_advice(bottleneck, evidence)
    chosen = _best_untried(base, judged.history, _latency_ms(judged.evaluation), predict)
    if chosen is None:
        return _stop_advice(f"{bottleneck} Every variation that applies here has been tried.", evidence)
    names = (*base, chosen.variation.name)
    return _advice(f"{bottleneck} {chosen.estimate}", evidence, names, chosen.variation.description, chosen.gain)


def _advise_repair(judged: JudgeInput, evidence: list[str], predict: Predict) -> dict[str, Any]:
    verdict = str(judged.evaluation.get("verdict", "failed"))
    message = str(judged.evaluation.get("message", ""))[:300]
    bottleneck = f"The candidate failed: {verdict}. {message}".strip()
    base = read_variations(judged.best) if judged.best is not None else ()
    failed = read_variations(judged.candidate) or ()
    if judged.best is None and failed:
        return _advice(bottleneck, evidence, (), "Go back to the kernels as they were generated.", 1.0)
    if judged.best is None:
        description = "The generated kernels do not work as they are; leave the op to torch.compile."
        return (
            _stop_advice(bottleneck, evidence)
            if is_fallback(judged.candidate)
            else _fallback_advice(bottleneck, evidence, description)
        )
    chosen = _best_untried(base or (), judged.history, None, predict)
    if chosen is None:
        return _stop_advice(f"{bottleneck} Nothing else is left to try.", evidence)
    dropped = ", ".join(name for name in failed if name not in (base or ()))
    description = f"Drop {dropped or 'the failed change'} and try another one: {chosen.variation.description}"
    names = (*(base or ()), chosen.variation.name)
    return _advice(f"{bottleneck} {chosen.estimate}", evidence, names, description, chosen.gain)


def _best_untried(
    base: tuple[str, ...], history: Sequence[Mapping[str, Any]], latency_ms: float | None, predict: Predict
) -> Choice | None:
    """The variation with the greatest expected gain, of those that are untried and have an effect, or None."""
    tried = set(base)
    for entry in history:
        tried |= set(parse_names(str(entry.get("change", ""))) or ())
    choices: list[Choice] = []
    for variation in VARIATIONS:
        if variation.name in tried or (variation.for_short_calls and (latency_ms or 0.0) >= LONG_CALL_MS):
            continue
        prediction = predict(base, variation.name)
        if prediction is None:
            continue
        gain = prediction.gain(latency_ms / 1000 if latency_ms is not None else None) * variation.extra_gain
        before, after = prediction.before_s * 1000, prediction.after_s * 1000
        estimate = f"By their code the kernels take {before:.3g} ms, with {variation.name} {after:.3g} ms."
        if gain >= MIN_ESTIMATED_GAIN or _is_urgent(variation, latency_ms):
            choices.append(Choice(variation, gain, estimate))
    return max(choices, key=lambda choice: (_is_urgent(choice.variation, latency_ms), choice.gain), default=None)


def _is_urgent(variation: Variation, latency_ms: float | None) -> bool:
    """Whether the measured call is so short that it mostly consists of the overhead that this variation saves."""
    return variation.for_short_calls and latency_ms is not None and latency_ms < SHORT_CALL_MS


def _latency_ms(evaluation: Mapping[str, Any]) -> float | None:
    """The candidate's measured latency in milliseconds; None: there is none."""
    latency = evaluation.get("latency_ms")
    value = latency.get("candidate") if isinstance(latency, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def _bound(evaluation: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """What limits the op (memory or compute), and the fraction of that limit that is reached, as far as known."""
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


def _advice(
    bottleneck: str, evidence: list[str], names: Sequence[str], description: str, gain: float
) -> dict[str, Any]:
    variations = format_names(tuple(v.name for v in VARIATIONS if v.name in names))
    return {
        "bottleneck": bottleneck,
        "evidence": evidence,
        "change": f"{variations}: {description}",
        "expected_speedup": gain,
        "stop": False,
    }


def _fallback_advice(bottleneck: str, evidence: list[str], description: str) -> dict[str, Any]:
    return {**_advice(bottleneck, evidence, (), description, 1.0), "change": f"{FALLBACK_CHANGE}: {description}"}


def _stop_advice(bottleneck: str, evidence: list[str]) -> dict[str, Any]:
    return {"bottleneck": bottleneck, "evidence": evidence, "change": "none", "expected_speedup": 1.0, "stop": True}


def describe_variations(names: Sequence[str]) -> str:
    """What these variations do, one line for each."""
    return (
        "\n".join(f"- {name}: {get_variation(name).description}" for name in names)
        or "- the kernels as TorchInductor makes them"
    )


def advice_reply(advice: Mapping[str, Any]) -> str:
    """The text of a Judge's reply with this advice."""
    return f"```json\n{json.dumps(advice, ensure_ascii=False, indent=1)}\n```\n"

"""The built-in model as Judge: it chooses the next variation from the evaluation and from estimates of the code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from agents.builtin.analysis.cost import Prediction
from agents.builtin.catalog import VARIATIONS, Variation, format_names, get_variation, in_order, parse_names
from agents.builtin.compiler import (
    MIN_ESTIMATED_GAIN,
    Predict,
    first_names,
    is_fallback,
    read_variations,
)
from agents.history import read_over_best
from tasks.outcomes import Decision, Verdict

NEAR_ROOFLINE = 0.95  # from this fraction of the limit on, nothing is left to gain
SHORT_CALL_MS = 0.1  # a shorter call mostly waits for threads to start
LONG_CALL_MS = 1.0  # in a longer call the start of threads does not matter
MIN_MEASURED_GAIN = 1.005  # a smaller gain is one of the noise
MIN_RETRIED_GAIN = 0.9  # a variation that lost more than this is not tried on another base
MAX_TRIES = 2  # of a variation
_BOUNDS = {"memory": "memory", "cache": "memory", "compute": "compute"}
FALLBACK_CHANGE = "torch-compile"


@dataclass(frozen=True)
class JudgeInput:
    """What the Judge knows: the candidate, the best one, the evaluation, and the history of the job.

    `known` is what variations gained in earlier jobs on ops with the same bound, as factors; `known_at_first` is what
    the first candidate was written with.
    """

    repair: bool
    candidate: str
    best: str | None
    evaluation: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    known: Mapping[str, float] = field(default_factory=dict)
    known_at_first: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What to try next: all variations of the candidate, the expected gain (a factor), what it does, and why."""

    names: tuple[str, ...]
    gain: float
    description: str
    reason: str
    urgent: bool = False


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
    chosen = _choose(base, judged, _latency_ms(judged.evaluation), predict)
    if chosen is None:
        return _stop_advice(f"{bottleneck} Every variation that applies here has been tried.", evidence)
    return _advice(f"{bottleneck} {chosen.reason}", evidence, chosen.names, chosen.description, chosen.gain)


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
    chosen = _choose(base or (), judged, None, predict)
    if chosen is None:
        return _stop_advice(f"{bottleneck} Nothing else is left to try.", evidence)
    dropped = ", ".join(name for name in failed if name not in (base or ()))
    description = f"Drop {dropped or 'the failed change'} and try another one: {chosen.description}"
    return _advice(f"{bottleneck} {chosen.reason}", evidence, chosen.names, description, chosen.gain)


@dataclass(frozen=True)
class _Tried:
    """What the history says of variations.

    Attributes:
        sets: the sets of variations that candidates had, whatever became of them.
        passed: those of candidates that passed.
        gains: what a variation gained when it was last compared with the same candidate without it, as a factor. Both
            were timed beside the best candidate of their time, so this is the quotient of figures of that kind.
    """

    sets: tuple[frozenset[str], ...]
    passed: frozenset[frozenset[str]]
    gains: Mapping[str, float]

    def count(self, name: str) -> int:
        """How many different candidates had this variation, without those that may have failed for another's fault."""
        return sum(
            name in each and (each in self.passed or len(each) == 1 or each - {name} in self.passed)
            for each in set(self.sets)
        )


def _read_history(judged: JudgeInput, predict: Predict) -> _Tried:
    sets: list[frozenset[str]] = []
    right: set[frozenset[str]] = set()
    speeds: dict[frozenset[str], float] = {}  # over the first candidate that passed
    gains: dict[str, float] = {}
    best = 1.0
    for entry in judged.history:
        names = parse_names(str(entry.get("change", "")))
        measured = read_over_best(entry)
        passed = entry.get("verdict") == Verdict.PASSED and "repeat_of_round" not in entry
        if names is None and not sets:
            names = first_names(predict, judged.known_at_first)
        if names is None:
            continue
        own = frozenset(names)
        sets.append(own)
        if entry.get("verdict") == Verdict.PASSED:
            right.add(own)
        if not passed or (measured is None and speeds):
            continue
        speeds[own] = best * (measured[0] if measured is not None else 1.0)
        for name in own:
            without = speeds.get(own - {name})
            if without:
                gains[name] = speeds[own] / without
        if measured is not None and measured[1] == Decision.BETTER:
            best = speeds[own]
    return _Tried(tuple(sets), frozenset(right), gains)


def _choose(base: tuple[str, ...], judged: JudgeInput, latency_ms: float | None, predict: Predict) -> Choice | None:
    """What to try on the candidate with the variations `base`; None: nothing is left.

    It is the choice with the greatest expected gain: a variation that is untried, with its gain in earlier jobs or else
    the estimated one, or all that gained something elsewhere and are not in `base`, with what they gained, or the
    base without a variation of the first candidate that hardly helps. If there is none, a variation that gained nothing
    is tried once more, on this base.
    """
    tried, known = _read_history(judged, predict), judged.known
    effects: list[tuple[Variation, Prediction]] = []
    for variation in VARIATIONS:
        prediction = None if variation.name in base else predict(base, variation.name)
        if prediction is not None:
            effects.append((variation, prediction))
    fresh = [
        choice
        for variation, prediction in effects
        if tried.count(variation.name) == 0
        and frozenset((*base, variation.name)) not in tried.sets
        and (choice := _estimated(base, variation, prediction, latency_ms, known)) is not None
    ]
    fresh += _left_out(base, tried, latency_ms, predict, judged)
    winners = [each.name for each, _ in effects if tried.gains.get(each.name, 0.0) >= MIN_MEASURED_GAIN]
    union = frozenset(base) | frozenset(winners)
    if winners and union not in tried.sets:
        gained = [tried.gains[name] for name in winners]
        figures = ", ".join(f"{name} {gain:.3f} times" for name, gain in zip(winners, gained, strict=True))
        description = " ".join(get_variation(name).description for name in winners)
        reason = f"Each of these was faster than the same kernels without it: {figures}."
        fresh.append(Choice(in_order(union), prod(gained), description, reason))
    again = [
        choice
        for variation, prediction in effects
        if MIN_RETRIED_GAIN <= tried.gains.get(variation.name, 0.0) < MIN_MEASURED_GAIN
        and tried.count(variation.name) < MAX_TRIES
        and frozenset((*base, variation.name)) not in tried.sets
        and (choice := _estimated(base, variation, prediction, latency_ms, known)) is not None
    ]
    return max(fresh or again, key=lambda choice: (choice.urgent, choice.gain), default=None)


def _left_out(
    base: tuple[str, ...], tried: _Tried, latency_ms: float | None, predict: Predict, judged: JudgeInput
) -> Iterator[Choice]:
    """The base without a variation that it had from the start, where that should hardly be slower."""
    for name in base:
        rest = tuple(each for each in base if each != name)
        from_the_start = get_variation(name).from_the_start or name in judged.known_at_first
        effect = predict(rest, name) if from_the_start else None
        if effect is None or frozenset(rest) in tried.sets:
            continue
        gain = 1 / judged.known.get(name, effect.gain(latency_ms / 1000 if latency_ms is not None else None))
        if gain >= MIN_ESTIMATED_GAIN:
            what = "In earlier jobs" if name in judged.known else "By its code"
            reason = f"{what} {name} hardly makes {'' if name in judged.known else 'these '}kernels faster."
            yield Choice(rest, gain, f"Leave out {name}.", reason)


def _estimated(
    base: tuple[str, ...],
    variation: Variation,
    prediction: Prediction,
    latency_ms: float | None,
    known: Mapping[str, float],
) -> Choice | None:
    """The choice of one more variation; None if it should make the call slower.

    What it gained in earlier jobs counts before the estimate. A variation of which the estimate says that it has no
    effect on this op at all is not among those asked about.
    """
    if variation.for_short_calls and (latency_ms or 0.0) >= LONG_CALL_MS:
        return None
    estimate = prediction.gain(latency_ms / 1000 if latency_ms is not None else None) * variation.extra_gain
    gain = known.get(variation.name, estimate)
    urgent = _is_urgent(variation, latency_ms)
    if gain < MIN_ESTIMATED_GAIN and not urgent:
        return None
    before, after = prediction.before_s * 1000, prediction.after_s * 1000
    reason = f"By their code the kernels take {before:.3g} ms, with {variation.name} {after:.3g} ms."
    if variation.name in known:
        reason += f" In earlier jobs kernels with it were {gain:.2f} times as fast."
    return Choice((*base, variation.name), gain, variation.description, reason, urgent)


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

"""Whether several evaluations of one candidate agree."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = "kernelwright.repeat/1"


def summary(results: Sequence[Mapping[str, Any]], asked: int) -> dict[str, Any]:
    """One object with all evaluations, how they differ, and how far their speedups spread.

    `agree` is None where there are fewer than two to compare.
    """
    differences = _differences(results)
    return {
        "schema": SCHEMA,
        "asked": asked,
        "done": len(results),
        "agree": None if len(results) < 2 else not differences,
        "differences": differences,
        "speedup": {name: _spread([one["value"] for one in given]) for name, given in _speedups(results).items()},
        "evaluations": list(results),
    }


def _differences(results: Sequence[Mapping[str, Any]]) -> list[str]:
    verdicts = list(dict.fromkeys(_verdict(result) for result in results))
    if len(verdicts) > 1:
        return [f"verdicts differ: {', '.join(verdicts)}"]
    found = []
    for name, given in _speedups(results).items():
        if len(given) < len(results):
            found.append(f"speedup over {name}: measured in {len(given)} of {len(results)}")
        low, high = max(one["low"] for one in given), min(one["high"] for one in given)
        if low > high:
            found.append(
                f"speedup over {name}: intervals do not overlap (one ends at {high:.3f}, one begins at {low:.3f})"
            )
    return found


def _verdict(result: Mapping[str, Any]) -> str:
    code = result.get("code")
    return f"{result['verdict']}/{code}" if code else str(result["verdict"])


def _speedups(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    found: dict[str, list[Mapping[str, float]]] = {}
    for result in results:
        for name, interval in (result.get("speedup") or {}).items():
            found.setdefault(name, []).append(interval)
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}

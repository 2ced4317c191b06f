"""The task check: can this op be run, and would a candidate that passes it be shown to be right?"""

import math
import time
from dataclasses import replace
from typing import Any

import torch

from ..errors import Finding, RunnerFailed, of_failure, of_task
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from ..pool import input_supply
from ..pool.runner_pool import RunnerPool, peak_resident_bytes, progress
from ..protocol.tensors import TensorRow
from ..timing.statistics import median
from .accuracy import flatten
from .call_outputs import value_of
from .findings import Evidence
from .reference import Expected, ask_reference

_CALLS = 14  # that are timed, at most
_CALLS_S = 1.0  # after so much no more are made, if there are
_LEAST_CALLS = 5
_WARM_UP = 2  # of these, the first that do not count
_LONG_CALL_S = 1.0  # of a source kernel: an evaluation makes a hundred


def run(pool: RunnerPool) -> dict[str, Any]:
    """Check the task. A problem makes the task unusable; a warning says that passing it is weak evidence."""
    start = time.perf_counter()
    problems: list[dict[str, str]] = []
    warnings: list[str] = []
    facts: dict[str, Any] = {}
    try:
        progress("running the op")
        reference = pool.start_reference()
        _inspect(pool, reference, warnings, problems, facts)
    except (Finding, RunnerFailed) as error:
        finding = error if isinstance(error, Finding) else of_failure(error)
        problems.append({"code": finding.code or "failed", "message": finding.message, "detail": finding.detail})
    finally:
        pool.stop_all()
    cost = {"total": round(time.perf_counter() - start, 3)}
    return {"ok": not problems, "problems": problems, "warnings": warnings, **facts, "cost_s": cost}


def _inspect(
    pool: RunnerPool,
    reference: RunnerHandle,
    warnings: list[str],
    problems: list[dict[str, str]],
    facts: dict[str, Any],
) -> None:
    evidence = Evidence()
    sets = [input_supply.make_inputs(pool, reference) for _ in range(2)]
    want = [
        replace(ask_reference(pool, reference, inputs, evidence, first=evidence.form is None), oracle={})
        for inputs in sets
    ]
    facts["inputs"] = [_describe(row) for row in sets[0].tree.tensors]
    facts["outputs"] = [
        _describe(row) if isinstance(row, TensorRow) else str(row) for row in flatten(want[0].form.tree).values()
    ]
    facts["parameters"] = [_describe(row) for row in (pool.state[0].tensors if pool.state else ())]
    if evidence.oracle_note:
        warnings.append(evidence.oracle_note)
    if not want[0].values:
        problems.append(_problem("no_outputs", "forward() returns nothing"))
    for path, first in want[0].values.items():
        second = want[1].values.get(path)
        if second is None or first.shape != second.shape:
            problems.append(_problem("shape_changes", f"output{path} has another shape for other inputs"))
        elif first.numel() > 0 and not bool(first.any()):
            problems.append(_problem("all_zero", f"output{path} is all zeros: returning zeros would pass"))
        elif torch.equal(first, second):
            problems.append(_problem("constant_output", f"output{path} is the same for two different sets of inputs"))
        elif first.is_floating_point() and not bool(torch.isfinite(first).all()):
            warnings.append(f"output{path} holds NaN or Inf on the task's own inputs")
    warnings += [
        f"{what} among the inputs is never varied: it could be hard-coded" for what in _modes(sets[0].tree.spec)
    ]
    _dependence(pool, reference, sets, want[0], warnings)
    call_s = _call_s(pool, reference, sets)
    if pool.request.source_kernel:
        found = pool.platform.examine_source_kernel(pool, reference)
        missing = found.facts.get("missing") or {}
        warnings += [f"not shown of the source kernel: {tag}: {why}" for tag, why in missing.items()]
        if call_s > _LONG_CALL_S:
            warnings.append(f"a call takes {call_s:.1f} s in the emulation: give it smaller inputs")
    else:
        facts["eager_ms"] = round(call_s * 1e3, 4)
    facts["memory_mb"] = reference.look(peak_resident_bytes) >> 20
    facts["need_mb"] = pool.need.nbytes >> 20


def _dependence(
    pool: RunnerPool, reference: RunnerHandle, sets: list[InputSet], want: Expected, warnings: list[str]
) -> None:
    """Warn of each input tensor that no output depends on.

    One input tensor at a time is exchanged for that of another set of inputs, and the outputs must change.

    Raises:
        Finding: a call with an exchanged tensor fails.
    """
    for index, row in enumerate(sets[0].tree.tensors):
        contents = list(sets[0].contents)
        if contents[index].numel() != sets[1].contents[index].numel() or torch.equal(
            contents[index], sets[1].contents[index]
        ):
            warnings.append(
                f"input tensor {index} is the same for every seed: only the input families vary it, if any do"
            )
            continue
        contents[index] = sets[1].contents[index]
        try:
            call = reference.call(sets[0].tree, contents, seed=sets[0].seed, timeout_s=60)
        except RunnerFailed as failure:
            raise of_task(failure, doing=f"a call with input tensor {index} exchanged") from None
        same = all(
            torch.equal(value_of(reference, leaf), want.values[path])
            for path, leaf in flatten(call.outputs).items()
            if path in want.values
        )
        if same:
            warnings.append(f"no output depends on input tensor {index} ({_describe(row)})")


def _modes(spec: Any) -> list[str]:
    """The Python booleans in the spec of a tree. Each selects one of two ways through the op; no family changes it."""
    ((kind, body),) = spec.items()
    if kind == "scalar":
        return [f"the Python bool {body}"] if isinstance(body, bool) else []
    if kind in ("list", "tuple"):
        return [mode for item in body for mode in _modes(item)]
    return [mode for _, item in body for mode in _modes(item)] if kind == "dict" else []


def _call_s(pool: RunnerPool, reference: RunnerHandle, sets: list[InputSet]) -> float:
    """The median time of calls in turn on each set, without the first ones."""
    times: list[float] = []
    while len(times) < _CALLS and (len(times) < _LEAST_CALLS or math.fsum(times) < _CALLS_S):
        inputs = sets[len(times) % len(sets)]
        try:
            call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=pool.request.call_timeout_s)
        except RunnerFailed as failure:
            raise of_task(failure, doing="a timed call") from None
        times.append(call.seconds)
    return median(times[_WARM_UP:])


def _describe(row: TensorRow) -> str:
    return f"{row.dtype}{list(row.shape)}"


def _problem(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message, "detail": ""}

"""The referee's mode `profile` on a GPU: says what a candidate's kernels do, so that its author can make them faster.

All of it is told by the candidate's process, which torch's profiler, Nsight Compute and compute-sanitizer run in or
beside: claims. A part that could not be measured is named under `absent` with the reason.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....errors import Finding, RunnerFailed
from ....isolation.calls import InputSet
from ....isolation.handle import RunnerHandle
from ....pool import input_supply
from ....pool.candidate_builder import Builder
from ....pool.runner_pool import RunnerPool, progress
from ....protocol.framing import Message
from ....protocol.tensors import Tree, bytes_needed
from ....protocol.untrusted import number, text
from ..driver import DriverError
from . import counters, kernels, sanitizer

_CLAIM = "claimed by the candidate's process"
_FAILURES = (RunnerFailed, ValueError, TypeError, KeyError)
_LISTING_S = 30.0  # for a program that runs nothing of the candidate's
_COUNTING_S, _SANITIZING_S = 120.0, 150.0  # for one that imports torch and runs a call many times
_ANSWER_S = 30.0  # beside the time of the program
_TRIES = 3  # runs of a call under Nsight Compute, of which each leaves out what the one before did not find
_COLLECTED = 20  # lines of a list of metrics that is one
_MOST_INPUT_BYTES = 480 << 20  # a runner may write files of 512 MiB


@dataclass
class _Observed:
    """The parts of a profile, and the reasons for those that are absent."""

    wanted: tuple[str, ...]
    parts: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def give_up(self, reason: str) -> None:
        """Name `reason` for each part that is neither there nor named as absent."""
        for name in self.wanted:
            if name not in self.parts:
                self.absent.setdefault(name, reason)


@dataclass(frozen=True)
class _Watched:
    """The candidate's runner, and how long it may still take."""

    handle: RunnerHandle
    left_s: Callable[[], float]
    call_s: float  # the most that a call may take

    def ask(self, what: str, *, timeout_s: float, **details: Any) -> Message:
        return self.handle.ask({"op": "profile", "what": what, **details}, timeout_s=timeout_s)

    def give(self, what: str, tree: Tree, contents: list[Any], **details: Any) -> Message:
        message = {"op": "profile", "what": what, **details}
        return self.handle.give(message, tree, contents, timeout_s=self.call_s + _ANSWER_S)

    def run(self, program: str, arguments: list[str], *, call: bool, timeout_s: float, **details: Any) -> Message:
        """Run a program in the candidate's sandbox, by itself or with a process under it that calls the candidate."""
        settings = {"program": program, "arguments": arguments, "call": call, "timeout_s": timeout_s}
        message = {"op": "profile", "what": "watch", "environment": {}, "warm_calls": 2, **settings, **details}
        return self.handle.ask(message, timeout_s=timeout_s + _ANSWER_S)


def run(pool: RunnerPool) -> dict[str, Any]:
    """Profile the candidate. `measure_budget_s` of the request bounds the time of all that is done here."""
    start = time.perf_counter()
    wanted = ("kernels", "compiled", "counters", *(("sanitizer",) if pool.request.sanitize else ()))
    observed = _Observed(wanted)

    def left_s() -> float:
        return max(1.0, pool.request.measure_budget_s - (time.perf_counter() - start))

    try:
        progress("profile: making inputs")
        reference = pool.start_reference()
        inputs = input_supply.make_inputs(pool, reference)
        pool.stop(reference)
        progress("profile: building the candidate")
        handle = Builder(pool, "candidate", pool.request.candidate_source, pool.request.build_cache).start()
        _observe(pool, _Watched(handle, left_s, pool.request.call_timeout_s), inputs, observed)
    except (Finding, RunnerFailed) as failure:
        observed.give_up(text(failure.message, 200))
    except DriverError as failure:
        observed.give_up(text(f"the GPU's driver: {failure}", 200))
    finally:
        pool.stop_all()
    return {**observed.parts, "absent": observed.absent, "cost_s": {"total": round(time.perf_counter() - start, 3)}}


def _observe(pool: RunnerPool, watched: _Watched, inputs: InputSet, observed: _Observed) -> None:
    """Observe part after part. One that fails is absent; the others are made, as long as the runner answers.

    Raises:
        RunnerFailed: it answers no more.
        DriverError: memory for inputs is refused.
    """
    keep = functools.cache(lambda: _keep(pool, watched, inputs))
    steps: dict[str, Callable[[], None]] = {
        "kernels": lambda: _launches(watched, inputs, observed),
        "compiled": lambda: _compiled(watched, observed),
        "counters": lambda: _counters(watched, keep, observed),
        "sanitizer": lambda: _sanitizer(watched, keep, observed),
    }
    for name in observed.wanted:
        try:
            steps[name]()
        except _FAILURES as error:
            observed.absent[name] = _reason(error)
            if isinstance(error, RunnerFailed) and error.kind not in ("error", "output", "out_of_memory"):
                raise


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the process gave an answer without {text(error, 40)}"
    return text(error.message if isinstance(error, RunnerFailed) else error, 240)


def _launches(watched: _Watched, inputs: InputSet, observed: _Observed) -> None:
    """The kernels of a call by torch's profiler, which needs no counters."""
    progress("profile: kernels of a call")
    reply = watched.give("launches", inputs.tree, inputs.contents)
    found = kernels.read_launches(reply["rows"])
    if not found:
        raise ValueError("torch's profiler saw no kernel")
    observed.parts["kernels_claimed"] = [[each["kernel"], each["share"]] for each in found]
    observed.parts["kernels"] = {"source": f"torch's profiler, {_CLAIM}", "kernels": found}


def _compiled(watched: _Watched, observed: _Observed) -> None:
    """Registers, spills and shared memory, as compilers tell them."""
    reply = watched.ask("compiled", timeout_s=watched.call_s + 6 * _ANSWER_S)
    found = [*kernels.read_triton(reply["triton"]), *kernels.read_usage(reply["usage"])]
    if found:
        launched = (observed.parts.get("kernels") or {}).get("kernels", [])
        told = kernels.those_that_ran(found, launched)
        source = f"Triton's compile information and cuobjdump, {_CLAIM}"
        observed.parts["compiled"] = {"source": source, "kernels": told, "kernels_seen": len(found)}
    elif reply["libraries"] and not reply["found"]:
        raise ValueError("no cuobjdump where candidates run: install NVIDIA's CUDA toolkit")
    else:
        raise ValueError("no compiler's figures of its kernels were found")


def _counters(watched: _Watched, keep: Callable[[], None], observed: _Observed) -> None:
    """Hardware counters by Nsight Compute."""
    reply = watched.run("ncu", ["--version"], call=False, timeout_s=_LISTING_S)
    if reply["found"] is not True:
        raise ValueError("no Nsight Compute (ncu) where candidates run: install Nsight Compute")
    version = counters.version(str(reply.get("log"))) or "of an unknown version"
    progress("profile: which counters there are")
    listed: list[str] = []
    known: set[str] = set()
    for name in counters.COLLECTIONS:
        reply = watched.run("ncu", counters.query(name), call=False, timeout_s=_LISTING_S, lines=list(counters.WORDS))
        if reply.get("status") == 0 and number(reply.get("lines", 0)) >= _COLLECTED:
            listed.append(name)
            known |= counters.listed_names(str(reply["log"]))
    chosen = counters.choose(known, listed=listed)
    keep()
    progress("profile: counters of a call")
    for _ in range(_TRIES):
        timeout_s = min(_COUNTING_S, watched.left_s())
        reply = watched.run("ncu", counters.arguments(chosen.asked), call=True, timeout_s=timeout_s)
        before, chosen = chosen, counters.without(chosen, str(reply["log"]))
        if chosen is before or not chosen.asked:
            break
    if chosen.unknown:
        observed.absent["metrics"] = (
            f"Nsight Compute {version} has none of these names here: {', '.join(chosen.unknown)}"
        )
    try:
        launches = counters.parse(str(reply["log"]), chosen.asked)
    except ValueError:
        told = {"log": str(reply["log"]), "errors": str(reply["errors"]), "status": reply["status"]}
        raise ValueError(counters.reason(**told, timeout_s=timeout_s)) from None
    source = f"Nsight Compute {version}, {_CLAIM}; caches cold"
    observed.parts["counters"] = {"source": source, **counters.fold(launches, chosen.asked)}


def _keep(pool: RunnerPool, watched: _Watched, inputs: InputSet) -> None:
    """Have the runner write down what a process beside it needs to make the same call.

    Raises:
        ValueError: the inputs are larger than a runner's files may be.
    """
    assert pool.init is not None
    if (size := bytes_needed(inputs.tree)) > _MOST_INPUT_BYTES:
        limit = f"{_MOST_INPUT_BYTES >> 20} MiB"
        raise ValueError(f"inputs of {size >> 20} MiB are not handed to a watched process, which takes {limit}")
    for name, tree, contents in (("init", *pool.init), ("inputs", inputs.tree, inputs.contents)):
        watched.handle.attach(pool.platform.input_buffer(bytes_needed(tree), 1))
        watched.give("keep", tree, contents, name=name)


def _sanitizer(watched: _Watched, keep: Callable[[], None], observed: _Observed) -> None:
    """What compute-sanitizer finds, one tool after the other."""
    keep()
    errors: list[list[object]] = []
    findings: list[dict[str, Any]] = []
    for tool in sanitizer.TOOLS:
        progress(f"profile: compute-sanitizer {tool}")
        timeout_s = min(_SANITIZING_S, watched.left_s())
        reply = watched.run(
            "compute-sanitizer",
            sanitizer.arguments(tool),
            call=True,
            timeout_s=timeout_s,
            warm_calls=0,
            environment=sanitizer.ENVIRONMENT,
        )
        if reply["found"] is not True:
            raise ValueError("no compute-sanitizer where candidates run: install NVIDIA's CUDA toolkit")
        report = sanitizer.parse(tool, str(reply["log"]))
        findings += report.findings
        if report.errors is None:
            told = {"errors": str(reply["errors"]), "status": reply["status"]}
            observed.absent[f"sanitizer_{tool}"] = sanitizer.reason(**told, timeout_s=timeout_s)
        else:
            errors.append([tool, report.errors])
    if not errors and not findings:
        raise ValueError("no tool of compute-sanitizer gave a summary")
    source = f"compute-sanitizer, {_CLAIM}"
    observed.parts["sanitizer"] = {"source": source, "errors": errors, "findings": findings[: sanitizer.FINDINGS]}

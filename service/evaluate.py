"""Evaluates a candidate that the user has as a file, once or repeatedly, and stores the results."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agents.protocols import Event
from db.evaluations import results
from db.jobs import jobs
from db.leaderboard.pooling import Speedup, pool_speedups
from db.records import EvaluationRecord, JobStatus
from db.store import Store
from evaluator.evaluation import Evaluation
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest
from service.evaluation_context import EvaluationContext, open_evaluation_context
from service.jobs.export import without_header
from service.jobs.journal import Observer
from service.jobs.liveness import LOST, job_heartbeat, job_lost, require_owned, this_process
from service.jobs.persistence import save_evaluation, save_task
from service.jobs.spec import BASELINES
from service.settings import Settings
from service.tasks import find_task
from service.weights import read_state
from tasks.native_candidate import SUFFIXES, python_candidate
from tasks.outcomes import Verdict, is_disqualifying, is_ranked
from tasks.restrict import restrict
from tasks.task import Task
from tasks.weights_file import Weights

MAX_CANDIDATE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Evaluated:
    """An evaluation as the evaluator returned it, and as it was stored."""

    evaluation: Evaluation
    record: EvaluationRecord


RULES = ("kernelbench",)  # accuracy rules that a report can compare ours with


def evaluate_file(
    ref: str,
    candidate: Path,
    *,
    settings: Settings,
    store: Store,
    observe: Observer,
    cancel: CancelToken,
    times: int = 1,
    rules: tuple[str, ...] = (),
    profile: bool = False,
    cold: bool = False,
    domain: str | None = None,
    state: Path | None = None,
    shape_group: int | None = None,
    sanitize: bool = False,
) -> Iterator[Evaluated]:
    """Evaluate the candidate in this file for the task that `ref` names, on a domain; the rest as `evaluate_source`.

    `state` is a file with weights of the task's model.

    Raises:
        TaskError, BadRequest: the task or one of the files cannot be used, or a rule is unknown.
        SandboxUnavailable, Cancelled: as `evaluate_source`.
    """
    check_rules(rules)
    task = restrict(find_task(ref, store=store), domain)
    yield from evaluate_source(
        task,
        candidate_for(task, candidate),
        origin=str(candidate),
        settings=settings,
        store=store,
        observe=observe,
        cancel=cancel,
        times=times,
        rules=rules,
        profile=profile,
        cold=cold,
        weights=None if state is None else read_state(state),
        shape_group=shape_group,
        sanitize=sanitize,
    )


def evaluate_source(
    task: Task,
    source: str,
    *,
    origin: str,
    settings: Settings,
    store: Store,
    observe: Observer,
    cancel: CancelToken,
    times: int = 1,
    rules: tuple[str, ...] = (),
    profile: bool = False,
    cold: bool = False,
    weights: Weights | None = None,
    shape_group: int | None = None,
    sanitize: bool = False,
) -> Iterator[Evaluated]:
    """Evaluate a candidate for a task, `times` times from the beginning.

    Each evaluation is yielded after it was stored, so that finished ones survive a cancellation. `origin` says where
    the source is from. The candidate counts as foreign code: it runs in the process sandbox only if the settings name
    that. `sanitize` has compute-sanitizer watch a call of one that passes, in its profile.

    Raises:
        BadRequest: a rule is unknown, the task has no shape groups, or there is no GPU to sanitize on.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before there was a verdict; nothing of that evaluation is stored.
        JobLost: other processes took this one for dead; nothing is stored.
    """
    check_rules(rules)
    with open_evaluation_context(
        task,
        settings,
        own_code_only=False,
        rules=rules,
        profile=profile,
        cold=cold,
        weights=weights,
        shape_group=shape_group,
        sanitize=sanitize,
    ) as context:
        for _ in range(times):
            yield _evaluate(context, source, origin, store, observe, cancel)


def check_rules(rules: tuple[str, ...]) -> None:
    """Refuse accuracy rules that no report can compare ours with.

    Raises:
        BadRequest: one of them is unknown.
    """
    for rule in rules:
        if rule not in RULES:
            raise BadRequest(f"--tolerance {rule[:80]}: unknown; there is: {', '.join(RULES)}")


def _evaluate(
    context: EvaluationContext, source: str, origin: str, store: Store, observe: Observer, cancel: CancelToken
) -> Evaluated:
    owner = this_process()
    with store.write() as session:
        job_id = jobs.add_job(
            session,
            task_id=save_task(session, context.task),
            kind="evaluate",
            platform=context.platform.name,
            sandbox=context.sandbox.name,
            owner=owner,
            options={"candidate": origin, BASELINES: context.settings.baselines},
        )
    status = JobStatus.FAILED
    try:
        with job_heartbeat(store, job_id, owner, cancel):
            evaluation = context.evaluate(
                source, on_progress=lambda text: observe(Event("step", 0, {"text": text})), cancel=cancel
            )
        with store.write() as session:
            require_owned(session, job_id, owner)
            evaluation_id = save_evaluation(session, job_id, context, source, evaluation, round_number=0)
            if evaluation.passed:
                jobs.set_best(session, job_id, evaluation_id)
        status = JobStatus.DONE
    except Cancelled:
        if cancel.reason == LOST:
            raise job_lost(job_id) from None
        status = JobStatus.CANCELLED
        raise
    finally:
        with store.write() as session:
            jobs.finish_job(session, job_id, owner, status=status, stop_reason=cancel.reason)
    with store.read() as session:
        return Evaluated(evaluation, results.get_evaluation(session, evaluation_id))


def candidate_for(task: Task, path: Path) -> str:
    """The Python of the candidate in this file for a task; C or C++ is made into it (`tasks.native_candidate`).

    Raises:
        BadRequest: as `read_candidate`.
        TaskError: the task takes no candidate in C or C++ of that form.
    """
    source = read_candidate(path)
    return python_candidate(task, source, path) if path.suffix in SUFFIXES else source


def read_candidate(path: Path) -> str:
    """Read a candidate's source. It is not checked here, because it is judged in the sandbox.

    An exported kernel is read without its header, so that it is the candidate that it was.

    Raises:
        BadRequest: there is no such file, it is larger than 1 MiB, or it is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadRequest(f"{path}: not a regular file; name a candidate's .py file")
        with path.open("rb") as file:
            data = file.read(MAX_CANDIDATE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadRequest(f"{path}: {getattr(error, 'strerror', None) or error}; name a candidate's .py file") from error
    if len(data) > MAX_CANDIDATE_BYTES:
        raise BadRequest(f"{path}: larger than 1 MiB; a candidate is one Python file")
    try:
        return without_header(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


SCHEMA = "kernelwright.repeat/1"


def repeat_summary(results: Sequence[Mapping[str, Any]], asked: int) -> dict[str, Any]:
    """All evaluations with their differences and the spread of their speedups. `agree` is None for fewer than two.

    `pooled` are the speedups that the leaderboard would give the candidate by these evaluations; empty if it would give
    none.
    """
    differences = _differences(results)
    return {
        "schema": SCHEMA,
        "asked": asked,
        "done": len(results),
        "agree": None if len(results) < 2 else not differences,
        "differences": differences,
        "speedup": {name: _spread([one["value"] for one in given]) for name, given in _speedups(results).items()},
        "pooled": _pooled(results),
        "evaluations": list(results),
    }


def _pooled(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    if any(is_disqualifying(result["verdict"], result.get("code")) for result in results):
        return {}
    passed = [result for result in results if result["verdict"] == Verdict.PASSED]
    ranked = [result for result in passed if is_ranked(result.get("tags") or ())]
    return {
        name: asdict(pool_speedups([Speedup(one["value"], one["low"], one["high"]) for one in given]))
        for name, given in _speedups(ranked or passed).items()
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

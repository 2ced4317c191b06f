"""The tools of the MCP server: each tool's arguments and its use case. This module does not depend on the protocol."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agents.protocols import Event
from db.records import LeaderboardFilters, LeaderboardSort
from db.store import Store
from evaluator.platforms import load_platform
from service.cancellation import CancelToken
from service.database import open_store
from service.errors import BadRequest
from service.evaluate import MAX_CANDIDATE_BYTES, Evaluated, evaluate_source, read_candidate
from service.settings import Settings
from service.tasks import find_task, list_tasks
from service.views.leaderboard import leaderboard_page
from tasks.load import load_task, task_from_source
from tasks.outcomes import RIGHT
from tasks.task import Task, TaskError
from tasks.text import MAX_SOURCE_BYTES

MAX_TEXT_CHARS = 16_000  # of one string in an answer; a compiler may print megabytes
MAX_ENTRIES = 500  # of one list in an answer
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"

OnProgress = Callable[[str], None]


class Arguments(BaseModel):
    """The arguments of a tool in a client's request."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpArguments(Arguments):
    """An op, by its name or by its source."""

    op: str | None = Field(
        None, max_length=1000, description="suite/name of a task, or the path of a .py file on this machine."
    )
    op_source: str | None = Field(
        None,
        max_length=MAX_SOURCE_BYTES,
        description="The op itself, instead of `op`: Python source that defines class Model(torch.nn.Module),"
        " get_inputs() and get_init_inputs(), or one function and get_inputs().",
    )
    name: str | None = Field(None, pattern=_NAME, description="What to call the op of `op_source`. Default: op.")


class CandidateArguments(OpArguments):
    """An op and a candidate for it."""

    candidate_source: str | None = Field(
        None,
        max_length=MAX_CANDIDATE_BYTES,
        description="The candidate: Python source that defines class ModelNew, drop-in for Model.",
    )
    candidate: str | None = Field(
        None, max_length=1000, description="Instead of `candidate_source`: the path of a .py file on this machine."
    )
    platform: str | None = Field(None, max_length=32, description="What to measure on. Default: as the server is set.")


class TaskArguments(OpArguments):
    """Arguments of `task`: the tasks to list, or the op to show or validate."""

    action: Literal["list", "show", "validate"] = Field(
        "list",
        description="list: the tasks of all suites. show: an op's source as it will be evaluated. validate: whether an"
        " op can be used, without its source.",
    )
    suite: str | None = Field(None, max_length=100, description="list: only this suite.")


class LeaderboardArguments(Arguments):
    """Filters of the leaderboard."""

    suite: str | None = Field(None, max_length=255, description="Only tasks of this suite (`local`: your own ops).")
    platform: str | None = Field(None, max_length=32, description="Only this platform.")
    task: str | None = Field(None, max_length=512, description="Only this task, as suite/name.")
    limit: int = Field(50, ge=1, le=MAX_ENTRIES, description="At most so many entries.")


@dataclass(frozen=True)
class ToolSpec:
    """A tool. `run` blocks, reports each step, and ends soon after its token was cancelled."""

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Settings, Any, OnProgress, CancelToken], Mapping[str, Any]]
    read_only: bool


def tool_specs() -> tuple[ToolSpec, ...]:
    """All tools."""
    return (
        ToolSpec(
            "evaluate",
            "Say what a candidate kernel is worth for an op: is it correct, and how much faster is it than eager"
            " PyTorch and torch.compile? Runs both in a sandbox, takes 5 to 60 seconds, one at a time. The verdict is"
            " in `verdict` (passed, wrong_output, build_failed, ...); `speedup` has 95 % intervals and is null unless"
            " it passed; `message` and `detail` say what to mend. `timed` says what the figures are made of: wall, a"
            " clock; or cycles, a count at a nominal rate, whose latencies are no times.",
            CandidateArguments,
            _evaluate,
            read_only=False,
        ),
        ToolSpec(
            "profile",
            "Evaluate a candidate and say where its time goes (some 10 s and a build more): its own functions, torch"
            " operators, what the compiler made of its loops, roofline.",
            CandidateArguments,
            _profile,
            read_only=False,
        ),
        ToolSpec(
            "task",
            "List the built-in tasks, show an op's source, or check that an op can be used. Nothing of it is executed.",
            TaskArguments,
            _task,
            read_only=True,
        ),
        ToolSpec(
            "leaderboard",
            "The fastest kernels that passed, by task, platform, device and sandbox. `pooled` evaluations of a kernel"
            " make one figure. Entries whose intervals overlap share a rank; those without a rank cannot be relied on,"
            " or passed nothing. With the tag cycles an entry's figures are counted cycles, not times.",
            LeaderboardArguments,
            _leaderboard,
            read_only=True,
        ),
    )


def bounded(value: Any) -> Any:
    """A JSON value with long texts and lists shortened. Each of these says how much was left out."""
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, Mapping):
        return {_shortened(str(key)): bounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        shown = [bounded(each) for each in value[:MAX_ENTRIES]]
        left = len(value) - MAX_ENTRIES
        return [*shown, f"... {left} more left out"] if left > 0 else shown
    return value


def _evaluate(
    settings: Settings, arguments: CandidateArguments, on_progress: OnProgress, cancel: CancelToken
) -> Mapping[str, Any]:
    record = _judged(settings, arguments, on_progress, cancel, profile=False).record
    return {**record.result, "timed": load_platform(record.platform, settings.device).timed}


def _profile(
    settings: Settings, arguments: CandidateArguments, on_progress: OnProgress, cancel: CancelToken
) -> Mapping[str, Any]:
    record = _judged(settings, arguments, on_progress, cancel, profile=True).record
    right = record.verdict in RIGHT
    profile = dict(record.result["profile"])
    return {
        "schema": "kernelwright.profile/1",
        "verdict": record.verdict,
        "code": record.code,
        "message": record.message,
        "detail": record.result.get("detail", ""),
        "text": load_platform(record.platform).profile_text(profile) if right else "",
        "profile": profile if right else {},
        "speedup": record.result.get("speedup"),
        "timed": load_platform(record.platform, settings.device).timed,
        "evaluation_id": record.id,
    }


def _judged(
    settings: Settings, arguments: CandidateArguments, on_progress: OnProgress, cancel: CancelToken, *, profile: bool
) -> Evaluated:
    if arguments.platform is not None:
        settings = settings.model_copy(update={"platform": arguments.platform})
    source, origin = _candidate(arguments)
    store = open_store(settings)

    def observe(event: Event) -> None:
        on_progress(str(event.data.get("text", event.kind)))

    try:
        task = _op(arguments, store)
        (evaluated,) = evaluate_source(
            task, source, origin=origin, settings=settings, store=store, observe=observe, cancel=cancel, profile=profile
        )
    finally:
        store.close()
    return evaluated


def _task(
    settings: Settings, arguments: TaskArguments, on_progress: OnProgress, cancel: CancelToken
) -> Mapping[str, Any]:
    store = open_store(settings)
    try:
        if arguments.action == "list":
            tasks = [_about(task) for task in list_tasks(store, arguments.suite)]
            return {"schema": "kernelwright.tasks/1", "tasks": tasks}
        task = _op(arguments, store)
    finally:
        store.close()
    source = {"source": task.source} if arguments.action == "show" else {}
    return {"schema": "kernelwright.task/1", **_about(task), **source}


def _leaderboard(
    settings: Settings, arguments: LeaderboardArguments, on_progress: OnProgress, cancel: CancelToken
) -> Mapping[str, Any]:
    store = open_store(settings)
    try:
        filters = LeaderboardFilters(suite=arguments.suite, platform=arguments.platform, task=arguments.task)
        entries, total = leaderboard_page(store, filters, sort=LeaderboardSort.BOARD, limit=arguments.limit)
    finally:
        store.close()
    shown = json.loads(json.dumps([asdict(entry) for entry in entries], default=str))
    return {"schema": "kernelwright.leaderboard/1", "entries": shown, "left_out": total - len(entries)}


def _op(arguments: OpArguments, store: Store) -> Task:
    """The op that the arguments name or hold. Its source is only parsed.

    Raises:
        TaskError, BadRequest: the op cannot be used, or the arguments give none or two.
    """
    if (arguments.op is None) == (arguments.op_source is None):
        raise BadRequest("op, op_source: give one of them, the name of an op or its source")
    if arguments.op_source is not None:
        return task_from_source(arguments.op_source, name=arguments.name or "op", where="op_source")
    named = str(arguments.op)
    if named.endswith(".py"):
        _check_path("op", named)
        return load_task(Path(named))
    try:
        return find_task(named, store=store, files=False)
    except TaskError:
        what = f"op {named[:200]!r}: no such task; `task` lists them; or name a .py file, or give op_source"
        raise BadRequest(what) from None


def _candidate(arguments: CandidateArguments) -> tuple[str, str]:
    """The candidate's source, which is not checked further, and its origin: a path, or `mcp`.

    Raises:
        BadRequest: the candidate cannot be used, or the arguments give none or two.
    """
    if (arguments.candidate is None) == (arguments.candidate_source is None):
        raise BadRequest("candidate, candidate_source: give one of them, the candidate's source or a .py file")
    if arguments.candidate is not None:
        _check_path("candidate", arguments.candidate)
        return read_candidate(Path(arguments.candidate)), arguments.candidate
    source = str(arguments.candidate_source)
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise BadRequest("candidate_source: holds characters that UTF-8 cannot encode; mend them") from None
    if size > MAX_CANDIDATE_BYTES:
        raise BadRequest("candidate_source: larger than 1 MiB; a candidate is one Python file")
    return source, "mcp"


def _check_path(what: str, name: str) -> None:
    """Check that a path, with links followed, names a .py file.

    Only Python files are read for a client, because errors quote lines of the file to the client.

    Raises:
        BadRequest: it does not.
    """
    try:
        real = Path(name).resolve()
    except (OSError, ValueError, RuntimeError):
        raise BadRequest(f"{what} {name[:200]!r}: no such file; name a .py file, or give {what}_source") from None
    if Path(name).suffix != ".py" or real.suffix != ".py":
        raise BadRequest(f"{what} {name[:200]!r}: not a .py file; name one, or give {what}_source")


def _about(task: Task) -> dict[str, Any]:
    about = {name: getattr(task, name) for name in ("suite", "name", "category", "dtype", "source_hash")}
    return {"task": task.id, **about}


def _shortened(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    half = MAX_TEXT_CHARS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"

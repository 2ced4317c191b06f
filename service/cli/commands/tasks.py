"""`kernelwright tasks list|show|check|import`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.options import Domain, Json, Op, SandboxName, Server

if TYPE_CHECKING:
    from db.store import Store
    from service.cancellation import CancelToken
    from service.client.server import TaskLine
    from service.settings import Settings
    from service.task_import import ImportCheck, ImportResult, Selection
    from tasks.task import Task


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True, help="The ops that can be optimized.", epilog="Example: kernelwright tasks list"
    )
    group.command(
        "list",
        epilog="Example: kernelwright tasks list --suite starter; kernelwright tasks list --server http://host:8765",
    )(list_)
    group.command(epilog="Example: kernelwright tasks show starter/rmsnorm_gelu")(show)
    group.command(epilog="Example: kernelwright tasks check op.py")(check)
    group.command(
        "import",
        epilog="Example: kernelwright tasks import kernelbench ~/KernelBench --check;"
        " kernelwright tasks import kernelbench ~/KernelBench --fit 256MB --only 'kernelbench-level1/*'",
    )(import_)
    app.add_typer(group, name="tasks")


def list_(
    suite: Annotated[str | None, typer.Option(help="Only this suite.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List the tasks of the built-in suites and those that were imported."""
    from service.cli.output import print_json, print_table
    from service.database import open_store
    from service.settings import load_settings
    from service.tasks import filter_by_suite, list_tasks

    settings = load_settings(server=server)
    if settings.server is not None:
        from service.cli.remote.tasks import list_tasks_at_server

        tasks: Sequence[Task | TaskLine] = filter_by_suite(list_tasks_at_server(settings), suite)
    else:
        store = open_store(settings)
        try:
            tasks = list_tasks(store, suite)
        finally:
            store.close()
    if as_json:
        print_json({"schema": "kernelwright.tasks/1", "tasks": [_task_json(task) for task in tasks]})
        return
    print_table(("task", "category", "dtype"), [(task.id, task.category, task.dtype) for task in tasks])


def show(op: Op, server: Server = None, as_json: Json = False) -> None:
    """Show an op: what it is and its source, after validation."""
    from service.cli.output import plain, print_json
    from service.settings import load_settings
    from service.tasks import find_ref
    from tasks.fit import fitted_of

    settings = load_settings(server=server)
    if settings.server is not None:
        from service.cli.remote.tasks import find_task_at_server

        task = find_task_at_server(op, settings)
    else:
        task = find_ref(op, settings)
    fitted = fitted_of(task.source)
    if as_json:
        told = None if fitted is None else asdict(fitted)
        print_json({"schema": "kernelwright.task/1", **_task_json(task), "fitted": told, "source": task.source})
        return
    print(f"# {plain(task.id)}: {plain(task.category)}, {plain(task.dtype)}, source SHA-256 {task.source_hash}")
    if fitted is not None:
        print(f"# {plain(fitted.of)} scaled down to {fitted.limit_bytes:,} bytes: {plain(fitted.describe())}")
    print("\n".join("" if not line else plain(line.replace("\t", "    ")) for line in task.source.splitlines()))


def check(
    op: Op,
    platform: Annotated[str | None, typer.Option(help="The platform that it is to be judged on.")] = None,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Run an op in a sandbox and say whether it can be judged; exit status 2 if it cannot.

    A server is only asked to read the op, and says whether it would queue it.
    """
    from agents.protocols import Event
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.output import latency, note, plain, print_json
    from service.cli.progress import show_progress
    from service.settings import load_settings
    from service.tasks import check as run
    from tasks.outcomes import Verdict

    settings = load_settings(platform=platform, sandbox=sandbox, server=server)
    if settings.server is not None:
        from service.cli.remote.tasks import check_task_at_server

        own = {"platform": platform, "sandbox": sandbox}
        return check_task_at_server(op, settings, server_flags=own, as_json=as_json)
    cancel = CancelToken()
    try:
        with cancel_on_signals(cancel), show_progress(f"Checking {op}") as observe:
            result = run(
                op, settings=settings, on_progress=lambda text: observe(Event("step", 0, {"text": text})), cancel=cancel
            )
    except Cancelled:
        note("error: stopped before the check was done")
        return cancel.exit_status or 1
    if as_json:
        print_json(result.to_json())
    else:
        print(f"{plain(result.task)}: {'can be judged' if result.ok else 'cannot be judged'}")
        for name, values in (("inputs", result.inputs), ("outputs", result.outputs)):
            print(f"{name + ':':10}{plain('; '.join(map(str, values)))}")
        taken = "" if result.eager_ms is None else f"{latency(result.eager_ms)} ms, "
        print(f"{'eager:' if taken else 'memory:':10}{taken}{plain(result.memory_mb)} MiB")
        if result.need_mb is not None:
            print(f"{'needs:':10}about {result.need_mb:,} MiB for an evaluation, of {settings.memory_mb:,} MiB")
        for warning in result.warnings:
            print(f"{'warning:':10}{plain(warning)}")
    for problem in result.problems:
        note(f"error: {plain(result.task)}: {plain(problem.code)}: {plain(problem.message)}")
    if any(problem.code == Verdict.SANDBOX_ERROR for problem in result.problems):
        return 3
    return 0 if result.ok else 2


def import_(
    kind: Annotated[
        Literal["kernelbench", "multikernelbench", "hpctranscompile"], typer.Argument(help="Whose clone it is.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A clone that you have.")],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Only these suites, tasks (suite/name, name) or patterns. May be repeated."
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name the suites NAME-level1 and so on, so that two versions stand side by side."
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Scale each task down until its inputs and outputs have at most so much, such as 256MB.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run each task in a sandbox, and list those that would prove nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="With --check: also those that were checked before.")] = False,
    domain: Domain = None,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Store the tasks of a benchmark, as suites by its levels or categories; nothing of them runs on the host.

    Those of hpctranscompile bring CUDA kernels, which `optimize --from cuda` translates.

    With --fit 256MB tasks go to suites of their own, such as kernelbench-level1-fit256MB. Integers that set the sizes
    of inputs are halved, in an order that docs/tasks.md tells, and each step is tried in a sandbox.

    With --check each is run in a sandbox (some 10 s a task): outputs that are constant, that do not depend on an input,
    that differ from run to run, or that are too small to time prove nothing. Findings are kept: after Ctrl-C the same
    command goes on where it was.
    """
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.output import note, print_json
    from service.database import open_store
    from service.errors import BadRequest
    from service.settings import load_settings
    from service.task_import import Selection, import_clone

    settings = load_settings(sandbox=sandbox, server=server)
    if settings.server is not None:
        raise BadRequest(
            f"kernelwright tasks import: reads a clone beside the store; run it where {settings.server} runs,"
            " without --server and KERNELWRIGHT_SERVER"
        )
    if again and not check:
        raise BadRequest("--again: is for --check; give both")
    selection = Selection(suite, tuple(only or ()), domain)
    cancel = CancelToken()
    found: list[ImportResult] = []
    checked: list[ImportCheck] = []
    stopped = False
    store = open_store(settings)
    try:
        if fit is None:
            found = import_clone(kind, path, store=store, selection=selection)
        else:
            with cancel_on_signals(cancel, "stopping; what was scaled down stays imported"):
                _import_fitted(kind, path, fit, selection, store, settings, cancel, found)
    except Cancelled:
        stopped = True
    finally:
        store.close()
    if not as_json:
        _show_found(found)
    if check and not stopped:
        try:
            with cancel_on_signals(cancel, "stopping after what was checked"):
                _check_imported(found, settings, cancel, checked, again=again)
        except Cancelled:
            stopped = True
    if as_json:
        print_json(_import_json(kind, found, checked))
    elif check:
        _show_checked(checked)
    if stopped:
        note("error: stopped before the end; the same command goes on from here")
        return cancel.exit_status or 1
    if not any(each.task is not None for each in found):
        note(f"error: tasks import {kind}: nothing was imported, all {len(found)} files of {path} were refused")
        return 2
    return cancel.exit_status or 0


def _import_fitted(
    kind: str,
    path: Path,
    fit: str,
    selection: "Selection",
    store: "Store",
    settings: "Settings",
    cancel: "CancelToken",
    found: "list[ImportResult]",
) -> None:
    """Import the tasks of a clone scaled down, with a line on stderr for each that was tried."""
    from service.cli.output import note, plain
    from service.task_import import import_fitted
    from tasks.fit import fitted_of, read_limit

    steps = import_fitted(
        kind,
        path,
        read_limit(fit),
        store=store,
        settings=settings,
        selection=selection,
        on_progress=lambda done, count: note(f"[{done}/{count}] measured") if done % 8 == 0 or done == count else None,
        cancel=cancel,
    )
    for results in steps:
        found.extend(results)
        for each in results:
            if each.fit is not None and each.task is not None:
                fitted = fitted_of(each.task.source)
                note(f"{plain(each.task.id)}: {plain(fitted.describe() if fitted else '')}")


def _check_imported(
    found: "list[ImportResult]",
    settings: "Settings",
    cancel: "CancelToken",
    checked: "list[ImportCheck]",
    *,
    again: bool,
) -> None:
    """Check what was imported, one after the other, with a line on stderr for each."""
    from service.cli.output import note, plain
    from service.task_import import check_imported

    tasks = [each.task for each in found if each.task is not None]
    for result in check_imported(tasks, settings=settings, on_progress=lambda text: None, cancel=cancel, again=again):
        checked.append(result)
        said = "; ".join((*result.problems, *result.doubts)) or "can be judged"
        earlier = " (checked earlier)" if result.kept else ""
        note(f"[{len(checked)}/{len(tasks)}] {plain(result.task.id)}: {plain(said)}{earlier}")


def _show_found(found: "list[ImportResult]") -> None:
    from service.cli.output import plain, print_table
    from service.task_import import STATUSES

    suites: dict[str, dict[str, int]] = {}
    for each in found:
        if each.task is not None:
            counts = suites.setdefault(each.task.suite, dict.fromkeys(STATUSES, 0))
            counts[each.status] += 1
    shown = STATUSES[:-1]
    print_table(("suite", *shown), [(suite, *(counts[name] for name in shown)) for suite, counts in suites.items()])
    for each in found:
        if each.status == "refused":
            print(f"refused {plain(each.where)}: {plain(each.problem)}")
        elif each.status == "changed" and each.task is not None:
            print(f"changed {plain(each.task.id)}: results of its earlier form stay with that form")


def _show_checked(checked: "list[ImportCheck]") -> None:
    from service.cli.output import plain

    degenerate = [each for each in checked if each.degenerate]
    for each in degenerate:
        word = "unusable" if each.problems else "weak"
        print(f"{word} {plain(each.task.id)}: {plain('; '.join((*each.problems, *each.doubts)))}")
    print(f"{len(checked) - len(degenerate)} of {len(checked)} tasks checked prove something when they are passed")


def _import_json(kind: str, found: "list[ImportResult]", checked: "list[ImportCheck]") -> dict[str, Any]:
    tasks = [
        {
            "where": each.where,
            "status": each.status,
            "task": None if each.task is None else each.task.id,
            "category": None if each.task is None else each.task.category,
            "dtype": None if each.task is None else each.task.dtype,
            "source_hash": None if each.task is None else each.task.source_hash,
            "problem": each.problem,
            "fit": None if each.fit is None else _fit_json(each),
        }
        for each in found
    ]
    checks = [
        {
            "task": each.task.id,
            "degenerate": each.degenerate,
            "problems": list(each.problems),
            "doubts": list(each.doubts),
            "eager_ms": each.check.eager_ms,
            "memory_mb": each.check.memory_mb,
            "kept": each.kept,
        }
        for each in checked
    ]
    return {"schema": "kernelwright.tasks_import/1", "kind": kind, "tasks": tasks, "checks": checks}


def _fit_json(result: "ImportResult") -> dict[str, Any]:
    from tasks.fit import fitted_of

    fit = result.fit
    assert fit is not None
    fitted = None if result.task is None else fitted_of(result.task.source)
    return {
        "of": fit.task.id,
        "changed": {} if fitted is None else {name: list(pair) for name, pair in fitted.changed.items()},
        "left_out": [] if fitted is None else list(fitted.left_out),
        "before": None if fit.before is None else asdict(fit.before),
        "after": None if fit.after is None else asdict(fit.after),
    }


def _task_json(task: "Task | TaskLine") -> dict[str, Any]:
    return {
        "task": task.id,
        "suite": task.suite,
        "name": task.name,
        "category": task.category,
        "dtype": task.dtype,
        "source_hash": task.source_hash,
    }

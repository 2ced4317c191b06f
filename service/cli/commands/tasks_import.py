"""`kernelwright tasks import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.options import Json, SandboxName, Server

if TYPE_CHECKING:
    from service.cancellation import CancelToken
    from service.settings import Settings
    from service.tasks import ImportCheck, ImportResult


def import_(
    kind: Annotated[Literal["kernelbench", "multikernelbench"], typer.Argument(help="Whose clone it is.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A clone that you have.")],
    check: Annotated[
        bool, typer.Option("--check", help="Run each task in a sandbox, and list those that would prove nothing.")
    ] = False,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Store the tasks of a benchmark, as suites by its levels or categories; nothing of them runs on the host.

    With --check each is run in a sandbox (some 10 s a task): outputs that are constant, that do not depend on an input,
    that differ from run to run, or that are too small to time prove nothing.
    """
    from service.cancellation import Cancelled, CancelToken
    from service.cli.output import note, print_json
    from service.cli.signals import cancel_on_signals, exit_status
    from service.database import open_store
    from service.errors import BadRequest
    from service.settings import load_settings
    from service.tasks import import_clone

    settings = load_settings(sandbox=sandbox, server=server)
    if settings.server is not None:
        raise BadRequest(
            f"kernelwright tasks import: reads a clone beside the store; run it where {settings.server} runs,"
            " without --server and KERNELWRIGHT_SERVER"
        )
    store = open_store(settings)
    try:
        found = import_clone(kind, path, store=store)
    finally:
        store.close()
    if not as_json:
        _show_found(found)
    cancel = CancelToken()
    checked: list[ImportCheck] = []
    stopped = False
    if check:
        try:
            with cancel_on_signals(cancel, "stopping after what was checked"):
                _check(found, settings, cancel, checked)
        except Cancelled:
            stopped = True
    if as_json:
        print_json(_json(kind, found, checked))
    elif check:
        _show_checked(checked)
    if stopped:
        note("error: stopped before all tasks were checked; those that were stay imported")
    return exit_status(cancel) or (1 if stopped else 0)


def _check(
    found: "list[ImportResult]", settings: "Settings", cancel: "CancelToken", checked: "list[ImportCheck]"
) -> None:
    """Check what was imported, one after the other, with a line on stderr for each."""
    from service.cli.output import note, plain
    from service.tasks import check_imported

    tasks = [each.task for each in found if each.task is not None]
    for result in check_imported(tasks, settings=settings, on_progress=lambda text: None, cancel=cancel):
        checked.append(result)
        said = "; ".join((*result.problems, *result.doubts)) or "can be judged"
        note(f"[{len(checked)}/{len(tasks)}] {plain(result.task.id)}: {plain(said)}")


def _show_found(found: "list[ImportResult]") -> None:
    from service.cli.output import plain, print_table
    from service.tasks import STATUSES

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


def _json(kind: str, found: "list[ImportResult]", checked: "list[ImportCheck]") -> dict[str, Any]:
    tasks = [
        {
            "where": each.where,
            "status": each.status,
            "task": None if each.task is None else each.task.id,
            "category": None if each.task is None else each.task.category,
            "dtype": None if each.task is None else each.task.dtype,
            "source_hash": None if each.task is None else each.task.source_hash,
            "problem": each.problem,
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
        }
        for each in checked
    ]
    return {"schema": "kernelwright.tasks_import/1", "kind": kind, "tasks": tasks, "checks": checks}

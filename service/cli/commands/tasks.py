"""`kernelwright tasks list|show|check|import`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.commands.tasks_import import import_
from service.cli.options import Json, Op, SandboxName, Server

if TYPE_CHECKING:
    from service.client.server import TaskLine
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
    group.command("import", epilog="Example: kernelwright tasks import kernelbench ~/KernelBench --check")(import_)
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

    settings = load_settings(server=server)
    if settings.server is not None:
        from service.cli.remote.tasks import find_task_at_server

        task = find_task_at_server(op, settings)
    else:
        task = find_ref(op, settings)
    if as_json:
        print_json({"schema": "kernelwright.task/1", **_task_json(task), "source": task.source})
        return
    print(f"# {plain(task.id)}: {plain(task.category)}, {plain(task.dtype)}, source SHA-256 {task.source_hash}")
    print("\n".join("" if not line else plain(line.replace("\t", "    ")) for line in task.source.splitlines()))


def check(
    op: Op,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Run an op in a sandbox and say whether it can be judged; exit status 2 if it cannot.

    A server is only asked to read the op, and says whether it would queue it.
    """
    from agents.protocols import Event
    from service.cancellation import Cancelled, CancelToken
    from service.cli.output import milliseconds, note, plain, print_json
    from service.cli.progress import show_progress
    from service.cli.signals import cancel_on_signals, exit_status
    from service.settings import load_settings
    from service.tasks import check as run

    settings = load_settings(sandbox=sandbox, server=server)
    if settings.server is not None:
        from service.cli.remote.tasks import check_task_at_server

        return check_task_at_server(op, settings, server_flags={"sandbox": sandbox}, as_json=as_json)
    cancel = CancelToken()
    try:
        with cancel_on_signals(cancel), show_progress(f"Checking {op}") as observe:
            result = run(
                op, settings=settings, on_progress=lambda text: observe(Event("step", 0, {"text": text})), cancel=cancel
            )
    except Cancelled:
        note("error: stopped before the check was done")
        return exit_status(cancel) or 1
    if as_json:
        print_json(result.to_json())
    else:
        print(f"{plain(result.task)}: {'can be judged' if result.ok else 'cannot be judged'}")
        for name, values in (("inputs", result.inputs), ("outputs", result.outputs)):
            print(f"{name + ':':10}{plain('; '.join(map(str, values)))}")
        print(f"{'eager:':10}{milliseconds(result.eager_ms)} ms, {plain(result.memory_mb)} MiB")
        for warning in result.warnings:
            print(f"{'warning:':10}{plain(warning)}")
    for problem in result.problems:
        note(f"error: {plain(result.task)}: {plain(problem.code)}: {plain(problem.message)}")
    if any(problem.code == "sandbox_error" for problem in result.problems):
        return 3
    return 0 if result.ok else 2


def _task_json(task: "Task | TaskLine") -> dict[str, Any]:
    return {
        "task": task.id,
        "suite": task.suite,
        "name": task.name,
        "category": task.category,
        "dtype": task.dtype,
        "source_hash": task.source_hash,
    }

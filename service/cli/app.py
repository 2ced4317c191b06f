"""The application: it assembles the commands, runs one, and turns every error into one line and an exit status."""

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.commands import admin, batch, evaluate, jobs, leaderboard, models, optimize, processes, system, tasks
from service.cli.output import print_json

if TYPE_CHECKING:
    from service.cli.errors import Failure

USAGE = 2

AddTo = Callable[[typer.Typer], None]
"""Adds commands to the application."""


def run(arguments: Sequence[str], *, more: Sequence[AddTo] = ()) -> int:
    """Run the command line.

    Args:
        arguments: the arguments of the command line.
        more: functions that add commands of packages which this one must not import.

    Returns:
        The exit status: 0 done, 1 a fault of Kernelwright itself, 2 wrong usage or an invalid op, 3 something that the
        machine lacks, 130 and 143 stopped by a signal.
    """
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    as_json = "--json" in arguments
    try:
        status = build_app(more)(arguments, prog_name="kernelwright", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        from service.cli.errors import Failure

        return _report(Failure(USAGE, "usage", _usage_line(error)), as_json)
    except typer.Abort:
        return 130
    except BrokenPipeError:  # the reader of stdout has closed it
        sys.stdout = None  # nothing may be flushed into it at exit
        return 0
    except Exception as error:
        from service.cli.errors import failure_of

        failure = failure_of(error)
        if debug:
            traceback.print_exc()
        return _report(failure, as_json)
    return status if isinstance(status, int) else 0


def build_app(more: Sequence[AddTo] = ()) -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # plain help starts twice as fast and looks the same in a log
        pretty_exceptions_enable=False,
        help="Takes a PyTorch op and gives back a faster kernel with proof.",
        epilog="Example: kernelwright optimize op.py",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for commands in (optimize, evaluate, models, tasks, leaderboard, jobs, batch, system, admin, processes):
        commands.add_to(app)
    for add_to in more:
        add_to(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from service.version import program_version

        print(f"kernelwright {program_version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    pass  # both options are handled before a command runs


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return " ".join(error.format_message().split()) + hint


def _report(failure: "Failure", as_json: bool) -> int:
    print(f"error: {failure.message}", file=sys.stderr)
    if as_json:
        print_json({"schema": "kernelwright.error/1", "error": {"kind": failure.kind, "message": failure.message}})
    return failure.status

"""`tasks list|show|check` through a server, which reads ops and runs none of them."""

from collections.abc import Mapping
from pathlib import Path

from evaluator.task_check import Problem, TaskCheck
from service.cli.output import note, plain, print_json
from service.cli.remote.jobs import refuse_flags
from service.client.server import TaskLine, open_server
from service.settings import Settings
from tasks.load import load_task, name_of, names_file
from tasks.task import LOCAL_SUITE, Task
from tasks.text import decode_source, read_source

NOT_RUN = "the server has read it and run nothing of it; `kernelwright tasks check` without --server runs it"


def list_tasks_at_server(settings: Settings) -> list[TaskLine]:
    """The tasks of the server's suites.

    Raises:
        BadRequest, Unavailable: the server refuses, or does not answer, as for every function here.
    """
    with open_server(settings) as server:
        return server.list_tasks()


def find_task_at_server(op: str, settings: Settings) -> Task:
    """The op in a file of this machine, or a task of the server.

    Raises:
        TaskError: the file cannot be read or holds no valid op.
    """
    if names_file(op):
        return load_task(Path(op))
    with open_server(settings) as server:
        return server.show_task(op)


def check_task_at_server(op: str, settings: Settings, *, server_flags: Mapping[str, object], as_json: bool) -> int:
    """Have a server read an op and say whether it would queue it; the exit status.

    Raises:
        TaskError, BadRequest: the file cannot be read, or an option is only for the server to set.
    """
    refuse_flags(server_flags)
    with open_server(settings) as server:
        if names_file(op):
            suite, name, source = LOCAL_SUITE, name_of(Path(op)), decode_source(read_source(Path(op)), op)
        else:
            task = server.show_task(op)
            suite, name, source = task.suite, task.name, task.source
        wrong = server.check_task(source, name)
    shown = f"{suite}/{name}"
    problems = () if wrong is None else (Problem("invalid_op", wrong),)
    if as_json:
        print_json(TaskCheck(shown, wrong is None, problems, warnings=(NOT_RUN,)).to_json())
    else:
        print(f"{plain(shown)}: {'can be queued' if wrong is None else 'cannot be queued'}")
        print(f"{'warning:':10}{NOT_RUN}")
    for problem in problems:
        note(f"error: {plain(shown)}: {problem.code}: {plain(problem.message)}")
    return 0 if wrong is None else 2

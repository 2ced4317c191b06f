"""`tasks list|show|check` through a server, which reads ops and runs none of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evaluator.task_check import Problem, TaskCheck
from service.cli.output import note, plain, print_json
from service.cli.remote.follow_job import refuse_flags
from service.client.server import Remote, TaskLine, check_source_there, list_tasks_there, open_remote, show_task_there
from service.settings import Settings
from tasks.load import load_task, name_of, names_file
from tasks.task import LOCAL_SUITE, Task
from tasks.text import decode_source, read_source

NOT_RUN = "the server has read it and run nothing of it; `kernelwright tasks check` without --server runs it"


def list_there(settings: Settings) -> list[TaskLine]:
    """The tasks of the server's suites.

    Raises:
        BadRequest, Unavailable: as every function here: the server refuses, or does not answer.
    """
    with _opened(settings) as remote:
        return list_tasks_there(remote)


def find_there(op: str, settings: Settings) -> Task:
    """The op in a file of this machine, or a task of the server.

    Raises:
        TaskError: the file cannot be read or holds no valid op.
    """
    if names_file(op):
        return load_task(Path(op))
    with _opened(settings) as remote:
        return show_task_there(remote, op)


def check_there(op: str, settings: Settings, *, flags: Mapping[str, object], as_json: bool) -> int:
    """Have a server read an op, and say whether it would queue it; the exit status.

    Raises:
        TaskError, BadRequest: the file cannot be read, or a flag is the server's to set.
    """
    refuse_flags(flags)
    with _opened(settings) as remote:
        if names_file(op):
            suite, name, source = LOCAL_SUITE, name_of(Path(op)), decode_source(read_source(Path(op)), op)
        else:
            task = show_task_there(remote, op)
            suite, name, source = task.suite, task.name, task.source
        wrong = check_source_there(remote, source, name)
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


@contextmanager
def _opened(settings: Settings) -> Iterator[Remote]:
    remote = open_remote(settings)
    try:
        yield remote
    finally:
        remote.close()

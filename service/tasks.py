"""Tasks: which there are, and whether one can be judged."""

from collections.abc import Callable

from evaluator.check import TaskCheck, check_task
from service.settings import Settings
from service.stopping import Stop
from service.turns import StillWaiting, device_lock, turn
from service.wiring import WAITING, Stopped, open_platform, open_sandbox
from tasks.load import find_task
from tasks.suites import list_suites, load_suite
from tasks.task import Task


def list_tasks(suite: str | None = None) -> list[Task]:
    """The tasks of the built-in suites, or of one of them.

    Raises:
        TaskError: there is no such suite.
    """
    return [task for name in ([suite] if suite else list_suites()) for task in load_suite(name).tasks]


def check(ref: str, *, settings: Settings, step: Callable[[str], None], stop: Stop) -> TaskCheck:
    """Run a task's own code in a sandbox and say whether it can be judged.

    Raises:
        TaskError: there is no such task, or it is not valid as it is written.
        SandboxUnavailable: there is no sandbox to work with.
        Stopped: a stop was requested before the end.
    """
    task = find_task(ref)
    platform = open_platform(settings.platform)
    lock = device_lock(settings.lock_dir, platform.name, settings.device)
    try:
        with (
            open_sandbox(settings, own_code_only=True) as sandbox,
            turn(lock, on_wait=lambda: step(WAITING), cancel=stop.event),
        ):
            result = check_task(task, sandbox=sandbox, on_progress=step, cancel=stop.event)
    except StillWaiting as waiting:
        raise Stopped from waiting
    if stop.requested():
        raise Stopped
    return result

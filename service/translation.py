"""Jobs that translate a kernel: which platforms' languages there are to translate from."""

from typing import Any

from agents.llm.models import is_builtin
from evaluator.platforms import PLATFORM_NAMES, load_platform
from service.errors import BadRequest
from service.settings import Settings
from tasks.source_kernel import MAX_KERNEL_BYTES, reference_kernel_of, source_kernel_of
from tasks.task import Task
from tasks.translate import with_source_kernel

__all__ = [
    "MAX_KERNEL_BYTES",
    "TRANSLATED_FROM",
    "check_origin",
    "check_reference",
    "source_language",
    "translated",
    "translation_option",
]

TRANSLATED_FROM = "translated_from"
"""The option of a job that names the platform whose kernel it translates."""


def translated(task: Task, settings: Settings, *, origin: str | None, kernel: str | None) -> Task:
    """The task for a job that translates a kernel; the task itself where nothing of that is asked for.

    Args:
        task: the task.
        settings: the job's settings.
        origin: the platform whose language is translated from; None: it is not asked for.
        kernel: the kernel; None: the task's own.

    Raises:
        BadRequest: there is no such platform, it is the one to optimize for, or the model reads no kernels.
        TaskError: the task brings no such kernel, or another one (`tasks.translate`).
    """
    if origin is not None:
        check_origin(settings, origin)
    return with_source_kernel(task, platform=origin, kernel=kernel)


def check_origin(settings: Settings, origin: str) -> None:
    """Check whether jobs with these settings can translate from a platform.

    Raises:
        BadRequest: there is no such platform, it is the one to optimize for, or the model reads no kernels.
    """
    _check_platform(origin, "--from")
    if origin == settings.platform:
        others = ", ".join(name for name in PLATFORM_NAMES if name != origin)
        raise BadRequest(f"--from {origin}: is the platform to optimize for; give another one: {others}")
    if is_builtin(settings.model):
        raise BadRequest(f"--from {origin}: model {settings.model} translates nothing; name an LLM with --model")


def source_language(task: Task) -> str:
    """What the kernel that a task brings is written in; empty: it brings none.

    Raises:
        BadRequest: it is for no platform that is known.
    """
    kernel = source_kernel_of(task.source)
    if kernel is None:
        return ""
    _check_platform(kernel.platform, f'{task.id}: SOURCE_KERNEL["platform"]')
    return load_platform(kernel.platform).language


def check_reference(task: Task, platform: str) -> None:
    """Check whether candidates can be judged on a platform, if the task's reference is a source kernel.

    Raises:
        BadRequest: they cannot: nothing could be timed beside them.
    """
    if platform not in PLATFORM_NAMES or reference_kernel_of(task.source) is None:
        return
    if load_platform(platform).timed == "nothing":
        return
    known = ", ".join(name for name in PLATFORM_NAMES if load_platform(name).timed == "nothing")
    raise BadRequest(
        f"{task.id}: its reference is a source kernel, which platform {platform} has nothing to time against; "
        f"use one of {known}, or write class Model beside the kernel"
    )


def translation_option(task: Task) -> dict[str, Any]:
    """The option that says in a job which platform's kernel it translates; empty: it translates none."""
    kernel = source_kernel_of(task.source)
    return {} if kernel is None else {TRANSLATED_FROM: kernel.platform}


def _check_platform(name: str, where: str) -> None:
    if name not in PLATFORM_NAMES:
        raise BadRequest(f"{where} {name[:80]!r}: no such platform; there is: {', '.join(PLATFORM_NAMES)}")

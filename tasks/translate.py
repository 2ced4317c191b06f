"""A task that is asked for as a translation: a task of its own, whose source brings the kernel to translate from."""

from dataclasses import replace
from pathlib import Path

from tasks.build import task_from_source
from tasks.source_kernel import NAME, SourceKernel, check_source_kernel, constant_text, source_kernel_of
from tasks.task import LOCAL_SUITE, Task
from tasks.text import read_source, task_error
from tasks.validate import validate


def with_source_kernel(task: Task, *, platform: str | None, kernel: str | None) -> Task:
    """The task with a kernel to translate from; the task itself where nothing is asked for or it brings the kernel.

    With a kernel that it does not bring itself it is another op of the user's own, called `NAME.from-PLATFORM`.

    Args:
        task: the task.
        platform: the platform whose language is to be translated from; None: nothing is asked for.
        kernel: the kernel; None: the task's own.

    Raises:
        TaskError: the task brings none, one for another platform, or one beside the one that is given; or the kernel
            that is given cannot be used.
    """
    if platform is None:
        if kernel is not None:
            raise task_error(task.id, "is given a source kernel of no platform", "say which with --from PLATFORM")
        return task
    own = source_kernel_of(task.source)
    if own is not None and kernel is not None:
        what = f"brings its own {NAME} (platform {own.platform})"
        raise task_error(task.id, what, "leave out --source, or take the constant out of the op")
    if own is not None and own.platform != platform:
        what = f"brings a {NAME} of platform {own.platform}, not {platform[:32]}"
        raise task_error(task.id, what, f"use --from {own.platform}, or take the constant out of the op")
    if own is not None:
        return task
    if kernel is None:
        remedy = "give the file of the kernel with --source FILE"
        raise task_error(task.id, f"brings no {NAME} to translate from {platform[:32]}", remedy)
    source = bring_kernel(task, SourceKernel(platform, kernel))
    found = task_from_source(source, name=f"{task.name}.from-{platform}", suite=LOCAL_SUITE, where=task.id)
    return replace(found, category=task.category, dtype=task.dtype)


def bring_kernel(task: Task, kernel: SourceKernel) -> str:
    """The source of a task that brings no kernel, with this one, whose lines end in line feeds then.

    Raises:
        TaskError: the kernel cannot be used, or the task brings one, or both are too long together.
    """
    kernel = replace(kernel, source=kernel.source.replace("\r\n", "\n").replace("\r", "\n"))
    check_source_kernel(kernel, "source kernel")
    source = f"{task.source.rstrip()}\n\n\n{constant_text(kernel)}"
    validate(source, task.id)
    return source


def read_kernel_file(path: Path) -> str:
    """The text of a file with a kernel.

    Raises:
        TaskError: it cannot be read, is too long, or is not UTF-8.
    """
    try:
        return read_source(path, what="file with the kernel").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise task_error(str(path), f"is not UTF-8 ({byte})", "save it as UTF-8") from None

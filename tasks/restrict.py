"""A task that is asked for on some inputs only: a task of its own, whose source declares the DOMAIN.

A task of a suite goes to the suite `SUITE.finite`, so that it has a board of its own; a user's op is called
`NAME.finite`. Both names stand for it wherever a task is named.
"""

from dataclasses import replace

from tasks.build import task_from_source
from tasks.declarations import declarations_of
from tasks.task import LOCAL_SUITE, Task
from tasks.text import task_error

RESTRICTIONS = ("finite",)
"""Domains that may be asked for: those that a candidate may be right on though the op takes more."""

_INFINITE = ("any", "bounded")  # declared domains that hold NaN or infinities


def restrict(task: Task, domain: str | None) -> Task:
    """The task for inputs of a domain; the task itself for None, or if what it declares lies within the domain.

    Raises:
        TaskError: there is no such domain to ask for, or the task declares others.
    """
    if domain is None:
        return task
    if domain not in RESTRICTIONS:
        raise task_error(f"--domain {domain[:80]}", "unknown", f"there is: {', '.join(RESTRICTIONS)}")
    declared = declarations_of(task.source).domain
    if declared and not any(each in _INFINITE for each in declared):
        return task
    if declared:
        remedy = f'give each input its domain there, "{domain}" among them'
        raise task_error(task.id, f"declares the DOMAIN {', '.join(declared)}, which --domain cannot change", remedy)
    suite, name = (
        (task.suite, f"{task.name}.{domain}") if task.suite == LOCAL_SUITE else (f"{task.suite}.{domain}", task.name)
    )
    source = f'{task.source.rstrip()}\n\n\nDOMAIN = "{domain}"\n'
    found = task_from_source(source, name=name, suite=suite, where=task.id)
    return replace(found, category=task.category, dtype=task.dtype)


def restricted_ref(ref: str, domain: str | None) -> str:
    """How the task of a suite that `ref` names is named on a domain; `ref` itself for None."""
    suite, slash, name = ref.partition("/")
    return ref if domain is None else f"{suite}.{domain}{slash}{name}"


def split_ref(ref: str) -> tuple[str, str | None]:
    """The inverse of `restricted_ref`: what names the whole task (or suite), and the domain."""
    suite, slash, name = ref.partition("/")
    whole, _, domain = suite.rpartition(".")
    return (f"{whole}{slash}{name}", domain) if whole and domain in RESTRICTIONS else (ref, None)

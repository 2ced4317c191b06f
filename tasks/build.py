"""Builds a task from source text."""

import re

from tasks.metadata import check_category, check_dtype
from tasks.normalize import to_kernelbench_form
from tasks.task import LOCAL_SUITE, Task
from tasks.text import decode_source, task_error
from tasks.validate import validate

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def task_from_source(
    source: str | bytes,
    *,
    name: str,
    suite: str = LOCAL_SUITE,
    category: str | None = None,
    dtype: str | None = None,
    where: str | None = None,
) -> Task:
    """Validate an op and make a task of it in the KernelBench form. The source is only parsed.

    An op already in that form keeps its source, without a leading byte order mark. `category` and `dtype` override
    those of the source. `where` is the op's name in errors (default `<name>`).

    Raises:
        TaskError: the op is not valid, or a name, category or dtype is not.
    """
    where = where or f"<{name}>"
    for what, value in (("name", name), ("suite", suite)):
        if _NAME.fullmatch(value) is None:
            remedy = "use up to 100 letters, digits, _, . and -, not starting with . or -"
            raise task_error(where, f"cannot be given the {what} {value[:100]!r}", remedy)
    text = decode_source(source, where)
    op = validate(text, where)
    normal = to_kernelbench_form(text, op)
    if normal is not text:
        validate(normal, where)  # the appended lines count towards the limits, and the result must be a valid op
    return Task(
        name=name,
        source=normal,
        suite=suite,
        category=op.category if category is None else check_category(category, where),
        dtype=op.dtype if dtype is None else check_dtype(dtype, where),
    )

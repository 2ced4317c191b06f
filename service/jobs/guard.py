"""The guard of an exported file: where its kernel has not been proven, the task's own code answers instead.

A kernel is proven by calls on inputs of the task's generators, on some beside them, and on one model whose parameters
stay as they are. In what nobody has tried it on, it may read memory as what it is not, lose gradients, or use what it
has computed from other parameters. The guard follows the kernel's source in the file, needs PyTorch alone, and sends
a call to the kernel only if it is like those that were judged (`guard_runtime.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.outcomes import Respect

MARK = "# Guard, written by Kernelwright:"

_RUNTIME = Path(__file__).with_name("guard_runtime.py")
_ALWAYS = (
    "with other dtypes, devices, numbers of dimensions, or values of what is no tensor",
    "where autograd, autocast or torch.func has a part in it",
    "with other sizes than those that may vary (`variable` below)",
    "of a model with parameters of other dtypes, devices or strides",
    "after parameters have been changed behind the kernel's first call",
)
_GUARD = """

{mark} calls unlike those that the kernel above was judged on
# go to the task's own code, which stands at the end as a string. These are calls
{others}

{runtime}

_guard_install(
    ModelNew,
    respects={guards!r},
    judged={judged!r},
    variable={variable!r},
    names={names!r},
    state={state!r},
    changing={changing!r},
    task=(
{task}
    ),
)
"""


def guard_text(neighbours: Mapping[str, Any] | None, task_source: str) -> str:
    """The guard of a kernel; empty where it is not known on what inputs the kernel was judged.

    Args:
        neighbours: the object of this name in the `correctness` of the kernel's evaluation.
        task_source: the task's source.
    """
    if not neighbours or not neighbours["judged"]:
        return ""
    others = "\n".join(f"# - {line}" for line in (*_ALWAYS, *_guarded(neighbours)))
    return _GUARD.format(
        mark=MARK,
        others=others,
        runtime=_RUNTIME.read_text(encoding="utf-8").partition('"""\n\n')[2].rstrip(),
        guards=list(neighbours["guards"]),
        judged=[[_finite(leaf) for leaf in leaves] for leaves in neighbours["judged"]],
        variable=[(each["dims"], each["multiple_of"]) for each in neighbours.get("variable") or ()],
        names=dict(neighbours["names"]),
        state=dict(neighbours.get("state") or {}),
        changing=list(neighbours.get("changing") or ()),
        task="\n".join(f"        {line!r}" for line in task_source.splitlines(keepends=True)),
    )


def _finite(leaf: Mapping[str, Any]) -> dict[str, Any]:
    """A leaf whose text is Python. Any float stands for a float, and infinity has no literal."""
    return {**leaf, "value": 0.0} if isinstance(leaf.get("value"), float) else dict(leaf)


def _guarded(neighbours: Mapping[str, Any]) -> list[str]:
    """In which calls the kernel is known to be wrong or to fail, or was not tried."""
    words = {
        Respect.STRIDE: "with other strides",
        Respect.ALIGNMENT: "with other alignment",
        Respect.NEGATIVE: "with negative integers in tensors",
        Respect.MODE: "in another mode (training or eval)",
    }
    return [words[name] for name in neighbours["guards"] if name in words]


def without_guard(source: str) -> str:
    """The kernel of an exported file; any other text as it is."""
    return source.rpartition(f"\n\n{MARK}")[0] or source

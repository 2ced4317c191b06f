"""What one call of an op touches: the bytes of its inputs, parameters and outputs, mostly without allocating them.

The op's code runs with fake tensors, which have a shape, a dtype and no storage. Where that is not possible, because
the code looks at values, it runs with real ones, as long as the inputs are no larger than the limit.
"""

import contextlib
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

Sizes = dict[str, Any]

_FAKE_S = 10.0
"""How long an op may take with fake tensors. A recurrent net takes longer with them than with real ones."""


def sizes_of(source: str, group: int | None, limit_bytes: int) -> Sizes:
    """The sizes of a call with the inputs of `get_inputs()`, or of a group of `get_input_groups()`.

    Returns:
        `inputs`, `parameters` and `outputs`, in bytes, each None where it could not be found out; `error`, why not; and
        `real`, whether real tensors were used for the outputs.
    """
    found: Sizes = {"inputs": None, "parameters": None, "outputs": None, "error": "", "real": False}
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _within(_FAKE_S), fake, torch.no_grad():
            _measure(source, group, found)
            return found
    except Exception as error:
        found["error"] = _line(error)
    if found["inputs"] is None:
        return _real_inputs(source, group, limit_bytes, found)
    return _real(source, group, limit_bytes, found)


_WARM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.second = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    def forward(self, x):
        return torch.softmax(self.second(self.first(x)), -1) @ torch.rand(8, 2)
def get_inputs():
    return [torch.rand(2, 3, 8, 8)]
def get_init_inputs():
    return []
"""


def warm_up() -> None:
    """Load what fake tensors need, so that it is loaded before processes are forked."""
    sizes_of(_WARM, None, 0)


def count_groups(source: str) -> int:
    """How many groups of inputs an op has."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return len(_load(source).get_input_groups())


@contextlib.contextmanager
def _within(time_s: float) -> Iterator[None]:
    """Raises a TimeoutError in the block after this time."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"takes over {time_s:g} s with fake tensors")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, time_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _measure(source: str, group: int | None, found: Sizes) -> None:
    torch.manual_seed(0)
    module = _load(source)
    inputs = _inputs(module, group)
    found["inputs"] = _bytes(inputs)
    model = module.Model(*module.get_init_inputs())
    found["parameters"] = _bytes([*model.parameters(), *model.buffers()])
    found["outputs"] = _bytes(model(*inputs))


def _real(source: str, group: int | None, limit_bytes: int, found: Sizes) -> Sizes:
    if found["inputs"] > limit_bytes:
        return found
    found["real"] = True
    return _tried(lambda: _measure(source, group, found), found)


def _real_inputs(source: str, group: int | None, limit_bytes: int, found: Sizes) -> Sizes:
    """The inputs alone, which cannot be made as fake tensors; and the rest if they are no larger than the limit."""

    def inputs() -> None:
        torch.manual_seed(0)
        found["inputs"] = _bytes(_inputs(_load(source), group))

    found = _tried(inputs, found)
    return _real(source, group, limit_bytes, found) if found["inputs"] is not None else found


def _tried(measure: Callable[[], None], found: Sizes) -> Sizes:
    try:
        with torch.no_grad():
            measure()
        found["error"] = ""
    except Exception as error:
        found["error"] = _line(error)
    return found


def _load(source: str) -> types.ModuleType:
    module = types.ModuleType("op")
    module.__file__ = "op.py"
    sys.modules["op"] = module  # dataclasses look their module up
    exec(compile(source, "op.py", "exec"), module.__dict__)  # noqa: S102 (inside the sandbox only)
    return module


def _inputs(module: types.ModuleType, group: int | None) -> list[Any]:
    return list(module.get_inputs() if group is None else module.get_input_groups()[group])


def _bytes(values: Any) -> int:
    """The bytes of the tensors in a value, each counted once, by its own elements and not by its storage."""
    seen: dict[int, int] = {}
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            seen[id(leaf)] = leaf.numel() * leaf.element_size()
    return sum(seen.values())


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]

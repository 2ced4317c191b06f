"""The guard of an exported file: where its kernel has not been proven, the task's own code answers instead.

A kernel that is tagged `specialised` is wrong or fails on inputs of other shapes, strides or alignment, though the
task's own code takes them, or there was no time to try it on them. The guard follows the kernel's source in the file,
needs PyTorch alone, and sends a call to the kernel only if its inputs are like those that were judged.
"""

from collections.abc import Mapping
from typing import Any

from tasks.outcomes import Respect

MARK = "# Guard, written by Kernelwright:"

_GUARD = '''

{mark} the kernel above is known to be right for inputs like those of its task only. Calls with any other
# {respects} go to the task's own code, which follows as a string.

import types as _guard_types
import weakref as _guard_weakref

import torch as _guard_torch

_GUARD_RESPECTS = {guards!r}
_GUARD_JUDGED = {judged!r}  # the leaves of each set of inputs that the kernel was judged on
_GUARD_NAMES = {names!r}  # what the task's code calls parameters that have another name in the kernel
_GUARD_ALIGN_BYTES = 64
_GUARD_MODELS = _guard_weakref.WeakKeyDictionary()  # the task's own model of each kernel that needed one
_GUARD_TASK = (
{task}
)


def _guard_leaves(value):
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _guard_leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _guard_leaves(item)]
    return [value]


def _guard_is_like(value, known):
    if "value" in known:
        return isinstance(value, float) or known["value"] in (value, str(value).removeprefix("torch."))
    if not isinstance(value, _guard_torch.Tensor):
        return False
    if str(value.dtype) != "torch." + known["dtype"] or value.device.type != known["device"].split(":")[0]:
        return False
    if value.dim() != len(known["shape"]) or value.layout != _guard_torch.strided:
        return False
    if "shape" in _GUARD_RESPECTS and list(value.shape) != known["shape"]:
        return False
    if "stride" in _GUARD_RESPECTS:
        same = list(value.shape) == known["shape"] and list(value.stride()) == known["stride"]
        if not same and not (known["contiguous"] and value.is_contiguous()):
            return False
    return "alignment" not in _GUARD_RESPECTS or value.data_ptr() % _GUARD_ALIGN_BYTES == 0


def _guard_takes(args, kwargs):
    """Whether the kernel was judged on inputs like these."""
    if kwargs:
        return False
    leaves = _guard_leaves(args)
    return any(len(leaves) == len(known) and all(map(_guard_is_like, leaves, known)) for known in _GUARD_JUDGED)


def _guard_task_model(kernel):
    """The task's own model, made when it is first needed; it has the parameters and buffers of the kernel."""
    model = _GUARD_MODELS.get(kernel)
    if model is None:
        task = _guard_types.ModuleType("task")
        exec(compile(_GUARD_TASK, "<the task's own code>", "exec"), task.__dict__)
        args, kwargs = kernel.__dict__["_guard_made_with"]
        model = _GUARD_MODELS[kernel] = task.Model(*args, **kwargs)
    return model.train(kernel.training)


def _guard_call(kernel, forward, args, kwargs):
    if _guard_takes(args, kwargs):
        return forward(*args, **kwargs)
    own = dict(kernel.named_parameters()) | dict(kernel.named_buffers())
    state = {{_GUARD_NAMES.get(name, name): tensor for name, tensor in own.items()}}
    model = _guard_task_model(kernel)
    known = dict(model.named_parameters()) | dict(model.named_buffers())
    state = {{name: tensor for name, tensor in state.items() if name in known}}
    return _guard_torch.func.functional_call(model, state, args, kwargs)


def _guard_class(cls):
    init, forward = cls.__init__, cls.forward

    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.__dict__["_guard_made_with"] = (args, kwargs)
        own = self.__dict__.get("forward")
        if own is not None:  # it has chosen a function of its own in its constructor
            self.__dict__["forward"] = lambda *args, **kwargs: _guard_call(self, own, args, kwargs)

    def guarded(self, *args, **kwargs):
        return _guard_call(self, forward.__get__(self), args, kwargs)

    cls.__init__, cls.forward = __init__, guarded


_guard_class(ModelNew)
'''


def guard_text(neighbours: Mapping[str, Any] | None, task_source: str) -> str:
    """The guard of a kernel; empty where it needs none.

    Args:
        neighbours: the object of this name in the `correctness` of the kernel's evaluation.
        task_source: the task's source.
    """
    respects = guarded_respects(neighbours)
    if neighbours is None or not respects:
        return ""
    named = " or ".join(filter(None, (", ".join(respects[:-1]), respects[-1])))
    return _GUARD.format(
        mark=MARK,
        respects=named,
        guards=list(neighbours["guards"]),
        judged=neighbours["judged"],
        names=dict(neighbours["names"]),
        task="\n".join(f"    {line!r}" for line in task_source.splitlines(keepends=True)),
    )


def guarded_respects(neighbours: Mapping[str, Any] | None) -> list[str]:
    """What must be as in the task for the kernel to be right, in words; nothing for a kernel that needs no guard."""
    guards = (neighbours or {}).get("guards") or ()
    words = {Respect.SHAPE: "shapes", Respect.STRIDE: "strides", Respect.ALIGNMENT: "alignment"}
    return [words[name] for name in guards if name in words]


def without_guard(source: str) -> str:
    """The kernel of an exported file; any other text as it is."""
    return source.rpartition(f"\n\n{MARK}")[0] or source

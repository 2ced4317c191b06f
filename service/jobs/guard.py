"""The guard of an exported file: where its kernel has not been proven, the task's own code answers instead.

A kernel is proven by calls on inputs of the task's generators, on some beside them, and on one model whose parameters
stay as they are. In what nobody has tried it on, it may read memory as what it is not, lose gradients, or use what it
has computed from other parameters. The guard follows the kernel's source in the file, needs PyTorch alone, and sends
a call to the kernel only if it is like those that were judged.
"""

from collections.abc import Mapping
from typing import Any

from tasks.outcomes import Respect

MARK = "# Guard, written by Kernelwright:"

_ALWAYS = (
    "with other dtypes, devices, numbers of dimensions, or values of what is no tensor",
    "where autograd wants gradients",
    "after the model has been cast or moved",
    "after parameters have been changed behind the kernel's first call",
)

_GUARD = '''

{mark} calls unlike those that the kernel above was judged on
# go to the task's own code, which follows as a string. These are calls
{others}

import re as _guard_re
import types as _guard_types
import warnings as _guard_warnings
import weakref as _guard_weakref

import torch as _guard_torch

_GUARD_RESPECTS = {guards!r}
_GUARD_JUDGED = {judged!r}  # the leaves of each set of inputs that the kernel was judged on
_GUARD_NAMES = {names!r}  # what the task's code calls parameters that have another name in the kernel
_GUARD_ALIGN_BYTES = 64
_GUARD_SIGNED = (_guard_torch.int64, _guard_torch.int32, _guard_torch.int16, _guard_torch.int8)
_GUARD_MODELS = _guard_weakref.WeakKeyDictionary()  # the task's own model of each kernel that needed one
_GUARD_TASK = (
{task}
)


def _guard_known(leaf):
    if "value" in leaf:
        return leaf
    return {{**leaf, "dtype": getattr(_guard_torch, leaf["dtype"]), "device": leaf["device"].split(":")[0]}}


_GUARD_JUDGED = [[_guard_known(leaf) for leaf in leaves] for leaves in _GUARD_JUDGED]


def _guard_leaves(values):
    leaves = []
    for value in values:
        if isinstance(value, (list, tuple)):
            leaves += _guard_leaves(value)
        elif isinstance(value, dict):
            leaves += _guard_leaves(value.values())
        else:
            leaves.append(value)
    return leaves


def _guard_is_like(value, known):
    if not isinstance(value, _guard_torch.Tensor):
        same = "value" in known and known["value"] in (value, str(value).removeprefix("torch."))
        return same or ("value" in known and isinstance(value, float))
    if "value" in known:
        return False
    if value.dtype is not known["dtype"] or value.device.type != known["device"]:
        return False
    if value.dim() != len(known["shape"]) or value.layout is not _guard_torch.strided:
        return False
    if "shape" in _GUARD_RESPECTS and list(value.shape) != known["shape"]:
        return False
    if "stride" in _GUARD_RESPECTS:
        same = list(value.shape) == known["shape"] and list(value.stride()) == known["stride"]
        if not same and not (known["contiguous"] and value.is_contiguous()):
            return False
    if "negative" in _GUARD_RESPECTS and value.dtype in _GUARD_SIGNED and value.numel() and value.amin() < 0:
        return False
    return "alignment" not in _GUARD_RESPECTS or value.data_ptr() % _GUARD_ALIGN_BYTES == 0


def _guard_takes(leaves):
    """Whether the kernel was judged on inputs like these."""
    for known in _GUARD_JUDGED:
        if len(leaves) == len(known) and all(map(_guard_is_like, leaves, known)):
            return True
    return False


def _guard_parameters(kernel):
    return list(kernel.parameters()) if isinstance(kernel, _guard_torch.nn.Module) else []


def _guard_places(kernel):
    """The dtype, the device and the strides of each parameter and buffer."""
    held = [*kernel.named_parameters(), *kernel.named_buffers()]
    return [(name, tensor.dtype, tensor.device.type, tensor.stride()) for name, tensor in held]


def _guard_wants_gradients(kernel, leaves, parameters):
    if not _guard_torch.is_grad_enabled():
        return False
    if getattr(kernel, "training", False) and any(each.requires_grad for each in parameters):
        return True
    return any(isinstance(leaf, _guard_torch.Tensor) and leaf.requires_grad for leaf in leaves)


def _guard_why(kernel, args, kwargs):
    """Why the task's own code answers a call; empty where the kernel does."""
    told = kernel.__dict__
    if told["_guard_moved"]:
        return "the model has been cast or moved"
    if "mode" in _GUARD_RESPECTS and not getattr(kernel, "training", True):
        return "it is in eval mode"
    leaves = _guard_leaves(args)
    if kwargs or not _guard_takes(leaves):
        return "its inputs are not like those that the kernel was judged on"
    parameters = told.get("_guard_parameters")
    if parameters is None:
        parameters = _guard_parameters(kernel)
    if _guard_wants_gradients(kernel, leaves, parameters):
        return "gradients are wanted (there are none under torch.no_grad(), or for parameters alone after eval())"
    told["_guard_parameters"] = parameters
    now = [(each.data_ptr(), each._version) for each in parameters]
    if told.setdefault("_guard_first_seen", now) != now:
        return "parameters were changed after the kernel's first call (make the model anew to use it again)"
    return ""


def _guard_task_model(kernel):
    """The task's own model, made when it is first needed; it has the parameters and buffers of the kernel."""
    model = _GUARD_MODELS.get(kernel)
    if model is None:
        task = _guard_types.ModuleType("task")
        exec(compile(_GUARD_TASK, "<the task's own code>", "exec"), task.__dict__)
        args, kwargs = kernel.__dict__["_guard_made_with"]
        model = _GUARD_MODELS[kernel] = task.Model(*args, **kwargs)
    return model


def _guard_tensor(kernel, name):
    """A tensor that the kernel has in an attribute, a list or a dict; None if there is none of this name."""
    value = kernel
    for index, attribute in _guard_re.findall(r"\\[(.+?)\\]|([^.\\[]+)", name):
        try:
            if attribute:
                value = getattr(value, attribute)
            else:
                value = value[int(index) if index.isdigit() else index.strip("'")]
        except (AttributeError, LookupError, TypeError):
            return None
    return value if isinstance(value, _guard_torch.Tensor) else None


def _guard_state(kernel, model):
    """The kernel's parameters and buffers by the names that the task's code has for them."""
    named = {{known: own for own, known in _GUARD_NAMES.items()}}
    state = {{}}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        own = _guard_tensor(kernel, named.get(name, name))
        if own is not None:
            state[name] = own
        elif isinstance(tensor, _guard_torch.nn.Parameter):
            raise RuntimeError(f"the kernel was not judged on such a call, and has no tensor of its own for {{name!r}}")
    return state


def _guard_call(kernel, forward, args, kwargs):
    why = _guard_why(kernel, args, kwargs)
    if not why:
        return forward(*args, **kwargs)
    if why not in kernel.__dict__["_guard_told"]:
        kernel.__dict__["_guard_told"] += (why,)
        _guard_warnings.warn(f"the task's own code answers a call of ModelNew: {{why}}", stacklevel=2)
    model = _guard_task_model(kernel)
    if not isinstance(model, _guard_torch.nn.Module):
        return model(*args, **kwargs)
    model.train(getattr(kernel, "training", model.training))
    return _guard_torch.func.functional_call(model, _guard_state(kernel, model), args, kwargs)


def _guard_class(cls):
    """Have calls of the class's instances looked at first. What is no class of Python code alone stays as it is."""
    is_module = issubclass(cls, _guard_torch.nn.Module)
    if issubclass(cls, _guard_torch.jit.ScriptModule) or not cls.__dictoffset__:
        return
    method = "forward" if is_module else "__call__"
    init, forward = cls.__init__, getattr(cls, method)

    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.__dict__.update(_guard_made_with=(args, kwargs), _guard_moved=False, _guard_told=())
        own = self.__dict__.get("forward") if is_module else None
        if own is not None:  # it has chosen a function of its own in its constructor
            self.__dict__["forward"] = lambda *args, **kwargs: _guard_call(self, own, args, kwargs)

    def guarded(self, *args, **kwargs):
        return _guard_call(self, forward.__get__(self), args, kwargs)

    cls.__init__ = __init__
    setattr(cls, method, guarded)
    if is_module:
        apply, load = cls._apply, cls._load_from_state_dict

        def _apply(self, *args, **kwargs):
            before = _guard_places(self)
            found = apply(self, *args, **kwargs)
            self.__dict__.pop("_guard_parameters", None)
            if _guard_places(self) != before:
                self.__dict__["_guard_moved"] = True
            return found

        def _load_from_state_dict(self, *args, **kwargs):
            self.__dict__.pop("_guard_parameters", None)  # they may become others
            load(self, *args, **kwargs)

        cls._apply, cls._load_from_state_dict = _apply, _load_from_state_dict


if isinstance(ModelNew, type):
    _guard_class(ModelNew)
'''


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
        guards=list(neighbours["guards"]),
        judged=neighbours["judged"],
        names=dict(neighbours["names"]),
        task="\n".join(f"    {line!r}" for line in task_source.splitlines(keepends=True)),
    )


def _guarded(neighbours: Mapping[str, Any]) -> list[str]:
    """In which calls the kernel is known to be wrong or to fail, or was not tried."""
    words = {
        Respect.SHAPE: "with other shapes",
        Respect.STRIDE: "with other strides",
        Respect.ALIGNMENT: "with other alignment",
        Respect.NEGATIVE: "with negative integers in tensors",
        Respect.MODE: "in eval mode",
    }
    return [words[name] for name in neighbours["guards"] if name in words]


def without_guard(source: str) -> str:
    """The kernel of an exported file; any other text as it is."""
    return source.rpartition(f"\n\n{MARK}")[0] or source

"""What an exported file holds behind its kernel; `guard.py` puts it there. It needs PyTorch and nothing else.

`_guard_install` has each call of `ModelNew` looked at first. A call that the kernel was not judged on goes to the
task's own code, which works on the kernel's own parameters and buffers.
"""

import concurrent.futures as _guard_futures
import copy as _guard_copy
import functools as _guard_functools
import inspect as _guard_inspect
import linecache as _guard_linecache
import re as _guard_re
import sys as _guard_sys
import threading as _guard_threading
import types as _guard_types
import warnings as _guard_warnings
import weakref as _guard_weakref
from typing import Any as _guard_Any
from typing import NamedTuple as _guard_NamedTuple

import torch as _guard_torch

_GUARD_ALIGN_BYTES = 64
_GUARD_SIGNED = (_guard_torch.int64, _guard_torch.int32, _guard_torch.int16, _guard_torch.int8)


class _GuardMade(_guard_NamedTuple):
    """How a kernel was made, and what its constructor left: the modes of its modules, by name and in the order of
    `_Guard._modes`, and which of its tensors are parameters or buffers."""

    args: _guard_Any
    kwargs: _guard_Any
    rng: _guard_Any
    device: _guard_Any
    dtype: _guard_Any
    named_modes: dict[str, bool]
    modes: list[bool]
    registered: list[bool]


class _GuardRecord:
    """What is known of one kernel: the tensors that its first call saw, and the task's model for its other calls."""

    def __init__(self, kernel: "_guard_weakref.ref[_guard_Any]") -> None:
        self.kernel = kernel
        self.seen: list[tuple[_guard_Any, int, int]] | None = None  # reference, address and version of each
        self.trained = False  # whether gradients were wanted behind that: some optimizers change no version
        self.model: _guard_Any = None
        self.modes: dict[str, bool] = {}  # of the model's modules, as its constructor left them
        self.told: set[str] = set()


class _Guard:
    """Decides for each call whether the kernel or the task's own code answers.

    `respects` are those in which the kernel takes its task for granted; `judged` are the leaves of each set of inputs
    that it was judged on, and `variable` the dimensions of the first of these that may have another size together;
    `names` are the task's names of tensors that have others in the kernel; `state` is the dtype, device and strides of
    each of the kernel's tensors that stand for the task's, and `changing` names those that calls change; `task` is the
    task's source.
    """

    def __init__(
        self,
        respects: list[str],
        judged: list[list[dict[str, _guard_Any]]],
        variable: list[tuple[list[list[int]], int]],
        names: dict[str, str],
        state: dict[str, list[_guard_Any]],
        changing: list[str],
        task: str,
    ) -> None:
        self.respects, self.task = respects, task
        self.judged = [[self._known(leaf) for leaf in leaves] for leaves in judged]
        self.variable = [({(leaf, dim) for leaf, dim in dims}, multiple_of) for dims, multiple_of in variable]
        self.variable.sort(key=lambda each: len(each[0]))
        self.own_names = {known: own for own, known in names.items()}
        self.state = [(getattr(_guard_torch, dtype), device, tuple(stride)) for dtype, device, stride in state.values()]
        self.paths = [name.split(".") for name in state]
        self.watched = [place for place, name in enumerate(state) if name not in changing]
        self.names = list(state)
        self.records: dict[int, _GuardRecord] = {}
        self.inside = _guard_threading.local()
        self.lock, self.records_lock = _guard_threading.Lock(), _guard_threading.Lock()
        self.module: _guard_Any = None
        self.untraced: _guard_Any = None

    @staticmethod
    def _known(leaf: dict[str, _guard_Any]) -> dict[str, _guard_Any]:
        if "value" in leaf:
            return leaf
        dtype, sizes = getattr(_guard_torch, leaf["dtype"]), {name: tuple(leaf[name]) for name in ("shape", "stride")}
        return {**leaf, **sizes, "dtype": dtype, "device": leaf["device"].split(":")[0]}

    def made(self, kernel: _guard_Any, made_with: _guard_Any) -> None:
        """Remember how a kernel was made. A function that it has chosen as its `forward` is guarded as well."""
        registered = [self._registered(kernel, path) is not None for path in self.paths]
        named = {}
        if isinstance(kernel, _guard_torch.nn.Module):
            named = {name: module.training for name, module in kernel.named_modules(remove_duplicate=False)}
        kernel.__dict__["_guard_made"] = _GuardMade._make((*made_with, named, self._modes(kernel), registered))
        self._take_forward(kernel, None)

    def _take_forward(self, kernel: _guard_Any, before: _guard_Any) -> None:
        own = kernel.__dict__.get("forward")
        if own is not None and own is not before and isinstance(kernel, _guard_torch.nn.Module):
            kernel.__dict__["_guard_forward"] = kernel.__dict__.pop("forward")

    @staticmethod
    def _modes(kernel: _guard_Any) -> list[bool]:
        modules: list[_guard_Any] = [kernel] if isinstance(kernel, _guard_torch.nn.Module) else []
        for module in modules:  # which grows
            if module._modules:
                modules += [each for each in module._modules.values() if each is not None]
        return [module.training for module in modules]

    def call(self, kernel: _guard_Any, function: _guard_Any, args: _guard_Any, kwargs: _guard_Any) -> _guard_Any:
        """Answer a call by `function`, which is the kernel, or by the task's own code."""
        if "torch._dynamo" not in _guard_sys.modules:
            return self._answer(kernel, function, args, kwargs)
        if self.untraced is None:  # torch.compile may be at work around the call
            self.untraced = _guard_torch.compiler.disable(self._answer)  # type: ignore[no-untyped-call]
        return self.untraced(kernel, function, args, kwargs)

    def _answer(self, kernel: _guard_Any, function: _guard_Any, args: _guard_Any, kwargs: _guard_Any) -> _guard_Any:
        inside = self.inside.__dict__.setdefault("kernels", set())
        if "_guard_made" not in kernel.__dict__ or id(kernel) in inside:
            return function(*args, **kwargs)  # of its constructor, or of the kernel itself
        record = self._record(kernel)
        why = self.refuses(kernel, record, args, kwargs)
        if why:
            if why not in record.told:
                record.told.add(why)
                _guard_warnings.warn(f"the task's own code answers a call of ModelNew: {why}", stacklevel=2)
            return self._by_task(kernel, record, args, kwargs)
        before = kernel.__dict__.get("forward")  # a user's own, which calls this one
        inside.add(id(kernel))
        try:
            return function(*args, **kwargs)
        finally:
            inside.discard(id(kernel))
            self._take_forward(kernel, before)

    def _record(self, kernel: _guard_Any) -> _GuardRecord:
        key = id(kernel)
        record = self.records.get(key)
        if record is None or record.kernel() is not kernel:
            with self.records_lock:
                record = self.records.get(key)
                if record is None or record.kernel() is not kernel:
                    ref = _guard_weakref.ref(kernel, lambda _: self.records.pop(key, None))
                    record = self.records[key] = _GuardRecord(ref)
        return record

    def refuses(self, kernel: _guard_Any, record: _GuardRecord, args: _guard_Any, kwargs: _guard_Any) -> str:
        """Why the task's own code answers a call; empty where the kernel does."""
        leaves, held = self.leaves(args), self._held(kernel)
        if self._is_watched(leaves, held):
            return (
                "torch looks into it (autocast, torch.func, forward-mode derivatives, tracing, a subclass of tensors)"
            )
        modes = self._modes(kernel)
        if modes != kernel.__dict__["_guard_made"].modes and ("mode" in self.respects or any(modes)):
            return "it is in another mode than it was judged in"
        if kwargs or not self.takes(leaves):
            return "its inputs are not like those that the kernel was judged on"
        if _guard_torch.is_grad_enabled() and self._wants_gradients(kernel, leaves, held):
            record.trained = record.trained or (record.seen is not None and self._may_train(held))
            return "gradients are wanted (not under torch.no_grad(), nor of parameters after eval())"
        if record.seen is None:
            with self.records_lock:
                return self._refuses_first(kernel, record, held)
        if record.trained or self._has_changed(held, record.seen):
            return "parameters were changed after the kernel's first call (make the model anew to use the kernel)"
        return ""

    def _refuses_first(self, kernel: _guard_Any, record: _GuardRecord, held: list[_guard_Any]) -> str:
        """The same for the kernel's first call, of which the tensors are remembered that it sees."""
        if record.seen is not None:  # another thread was first
            return ""
        if "_guard_called" in kernel.__dict__:
            return "it is a copy of a model that was called before (make a model anew to use the kernel)"
        if any(each is not None and _guard_torch.nn.parameter.is_lazy(each) for each in held):
            return ""  # the kernel's call makes them
        if not self._is_as_judged(held):
            return "its parameters are not of the dtypes, devices and strides that the kernel was judged with"
        record.seen = [
            (_guard_weakref.ref(held[place]), held[place].data_ptr(), held[place]._version) for place in self.watched
        ]
        kernel.__dict__["_guard_called"] = True
        return ""

    def _has_changed(self, held: list[_guard_Any], seen: list[tuple[_guard_Any, int, int]]) -> bool:
        for place, (ref, address, version) in zip(self.watched, seen, strict=True):
            each = held[place]
            if each is None or ref() is not each or each.data_ptr() != address or each._version != version:
                return True
        return False

    def leaves(self, values: _guard_Any) -> list[_guard_Any]:
        """The tensors and other values within nested lists, tuples and dicts."""
        found: list[_guard_Any] = []
        for value in values:
            if isinstance(value, (list, tuple)):
                found += self.leaves(value)
            elif isinstance(value, dict):
                found += self.leaves(value.values())
            else:
                found.append(value)
        return found

    def takes(self, leaves: list[_guard_Any]) -> bool:
        """Whether the kernel was judged on inputs like these."""
        for number, known in enumerate(self.judged):
            if len(leaves) != len(known) or not all(map(self._is_like, leaves, known)):
                continue
            others = self._other_sizes(leaves, known)
            if not others or (number == 0 and self._may_vary(others)):
                return True
        return False

    def _is_like(self, value: _guard_Any, known: dict[str, _guard_Any]) -> bool:
        """Whether a value is like a judged one in all but its sizes."""
        if not isinstance(value, _guard_torch.Tensor):
            return "value" in known and self._is_same(value, known["value"])
        if "value" in known or value.dtype is not known["dtype"] or value.device.type != known["device"]:
            return False
        if value.is_nested or value.layout is not _guard_torch.strided or value.is_conj() or value.is_neg():
            return False
        shape = value.shape
        if len(shape) != len(known["shape"]):
            return False
        if "stride" in self.respects:
            same = shape == known["shape"] and value.stride() == known["stride"]
            if not same and not (known["contiguous"] and value.is_contiguous()):
                return False
        if "negative" in self.respects and value.dtype in _GUARD_SIGNED and value.numel() and value.amin() < 0:
            return False
        return "alignment" not in self.respects or value.data_ptr() % _GUARD_ALIGN_BYTES == 0

    @staticmethod
    def _other_sizes(leaves: list[_guard_Any], known: list[dict[str, _guard_Any]]) -> dict[tuple[int, int], int]:
        """The sizes that are not those that were judged, by leaf and dimension."""
        return {
            (number, dim): size
            for number, (leaf, each) in enumerate(zip(leaves, known, strict=True))
            if "shape" in each and leaf.shape != each["shape"]
            for dim, size in enumerate(leaf.shape)
            if size != each["shape"][dim]
        }

    def _may_vary(self, others: dict[tuple[int, int], int]) -> bool:
        """Whether such sizes were tried: each belongs to dimensions that may vary together, all of the same size."""
        left = set(others)
        for dims, multiple_of in self.variable:  # those of few dimensions first
            if dims <= others.keys():
                sizes = {others[dim] for dim in dims & left}
                if len(sizes) == 1 and all(size > 1 and size % multiple_of == 0 for size in sizes):
                    left -= dims
        return not left

    def _is_same(self, value: _guard_Any, known: _guard_Any) -> bool:
        """Whether values that are no tensors are alike. Floats were varied; a dtype is known by its name."""
        if type(value) in (bool, int, float, str, type(None)):
            return type(value) is type(known) and (type(value) is float or bool(value == known))
        return isinstance(known, str) and str(value).removeprefix("torch.") == known

    @staticmethod
    def _registered(kernel: _guard_Any, path: list[str]) -> _guard_Any:
        """The parameter or buffer of that name; None if there is none."""
        if not isinstance(kernel, _guard_torch.nn.Module):
            return None
        module: _guard_Any = kernel
        for part in path[:-1]:
            module = module._modules.get(part)
            if module is None:
                return None
        found = module._parameters.get(path[-1])
        return module._buffers.get(path[-1]) if found is None else found

    def _held(self, kernel: _guard_Any) -> list[_guard_Any]:
        """The kernel's tensors that stand for the task's; None for one that has left the place that it was made in."""
        registered = kernel.__dict__["_guard_made"].registered
        return [
            self._registered(kernel, path) if was_registered else self._tensor(kernel, name)
            for path, name, was_registered in zip(self.paths, self.names, registered, strict=True)
        ]

    def _is_watched(self, leaves: list[_guard_Any], held: list[_guard_Any]) -> bool:
        functorch = _guard_torch._C._functorch
        if _guard_torch.autograd.forward_ad._current_level >= 0 or functorch.peek_interpreter_stack() is not None:
            return True
        if _guard_torch._C._is_any_autocast_enabled() or _guard_torch._C._get_tracing_state() is not None:
            return True
        for each in (*leaves, *held):
            kind = type(each)
            if kind is _guard_torch.Tensor or kind is _guard_torch.nn.Parameter or each is None:
                continue
            if isinstance(each, _guard_torch.Tensor) and not _guard_torch.nn.parameter.is_lazy(each):
                return True
        return False

    def _wants_gradients(self, kernel: _guard_Any, leaves: list[_guard_Any], held: list[_guard_Any]) -> bool:
        if getattr(kernel, "training", False) and self._may_train(held):
            return True
        return any(isinstance(leaf, _guard_torch.Tensor) and leaf.requires_grad for leaf in leaves)

    @staticmethod
    def _may_train(held: list[_guard_Any]) -> bool:
        return any(each is not None and each.requires_grad for each in held)

    def _is_as_judged(self, held: list[_guard_Any]) -> bool:
        for each, (dtype, device, stride) in zip(held, self.state, strict=True):
            if each is None or each.is_meta or each.is_inference() or each.dtype is not dtype:
                return False
            if each.device.type != device or each.stride() != stride:
                return False
        return True

    def _tensor(self, kernel: _guard_Any, name: str) -> _guard_Any:
        """A tensor that the kernel has in an attribute, a list or a dict; None if there is none of this name."""
        value = kernel
        for index, attribute in _guard_re.findall(r"\[(.+?)\]|([^.\[]+)", name):
            try:
                if attribute:
                    value = getattr(value, attribute)
                else:
                    value = value[int(index) if index.isdigit() else index.strip("'")]
            except (AttributeError, LookupError, TypeError):
                return None
        return value if isinstance(value, _guard_torch.Tensor) else None

    def _by_task(self, kernel: _guard_Any, record: _GuardRecord, args: _guard_Any, kwargs: _guard_Any) -> _guard_Any:
        model = self._task_model(kernel, record)
        if not isinstance(model, _guard_torch.nn.Module):
            return model(*args, **kwargs)
        self._follow_modes(kernel, record, model)
        shared = self._share_tensors(kernel, model)
        try:
            return model(*args, **kwargs)
        finally:
            for name, before in shared.items():  # a buffer may be another tensor now
                now = self._tensor(model, name)
                if now is not before and isinstance(kernel, _guard_torch.nn.Module):
                    self._put(kernel, self.own_names.get(name, name), now)

    def _task_model(self, kernel: _guard_Any, record: _GuardRecord) -> _guard_Any:
        """The task's own model, made when it is first needed, under the state of the generator that the kernel had."""

        def make() -> None:
            made = kernel.__dict__["_guard_made"]
            module, usual = self._task_module(), _guard_torch.get_default_dtype()
            with _guard_torch.random.fork_rng(devices=[]), _guard_torch.device(made.device):
                _guard_torch.set_rng_state(made.rng)
                _guard_torch.set_default_dtype(made.dtype)
                try:
                    record.model = module.Model(*made.args, **made.kwargs)
                finally:
                    _guard_torch.set_default_dtype(usual)
            if isinstance(record.model, _guard_torch.nn.Module):
                record.modes = {name: each.training for name, each in record.model.named_modules()}

        with self.lock:
            if record.model is None:
                # In a thread of its own nothing that surrounds the call (torch.func, inference mode) has a part in it.
                with _guard_futures.ThreadPoolExecutor(1) as pool:
                    pool.submit(make).result()
        return record.model

    def _task_module(self) -> _guard_Any:
        if self.module is None:
            name = f"_guard_task_{id(self)}"
            module, file = _guard_types.ModuleType(name), f"<{name}>"
            lines = self.task.splitlines(keepends=True)
            _guard_linecache.cache[file] = (len(self.task), None, lines, file)
            _guard_sys.modules[name] = module  # some of what a file may hold looks itself up there
            exec(compile(self.task, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the task's code
            self.module = module
        return self.module

    def _follow_modes(self, kernel: _guard_Any, record: _GuardRecord, model: _guard_Any) -> None:
        """Set the mode of each module of the task's model where the kernel's of that name was set to another."""
        if not isinstance(kernel, _guard_torch.nn.Module):
            return
        first = kernel.__dict__["_guard_made"].named_modes
        own = {name: module.training for name, module in kernel.named_modules(remove_duplicate=False)}
        for name, module in model.named_modules():
            which = name if name in own and name in first else ""
            module.training = record.modes.get(name, module.training) if own[which] == first[which] else own[which]

    def _share_tensors(self, kernel: _guard_Any, model: _guard_Any) -> dict[str, _guard_Any]:
        """Give the task's model the kernel's tensors themselves, by name; these tensors."""
        shared: dict[str, _guard_Any] = {}
        parameters: dict[str, _guard_Any] = dict(model.named_parameters(remove_duplicate=False))
        buffers: dict[str, _guard_Any] = dict(model.named_buffers(remove_duplicate=False))
        for name, tensor in (parameters | buffers).items():
            own = self._tensor(kernel, self.own_names.get(name, name))
            if own is not None:
                shared[name] = own
                if own is not tensor:
                    self._put(model, name, own)
            elif name in parameters:
                text = f"the kernel was not judged on such a call, and has no tensor of its own for {name!r}"
                raise RuntimeError(text)
        return shared

    @staticmethod
    def _put(model: _guard_Any, name: str, tensor: _guard_Any) -> None:
        path, _, last = name.rpartition(".")
        module = model.get_submodule(path)
        for registered in (module._parameters, module._buffers):
            if last in registered:
                registered[last] = tensor


def _guard_method(guard: _Guard, cls: _guard_Any, name: str) -> None:
    """Have calls of a method of `ModelNew` looked at first."""
    plain = _guard_inspect.getattr_static(cls, name)
    bind = getattr(type(plain), "__get__", None)
    if isinstance(
        plain, _guard_types.FunctionType
    ):  # torch.compile follows this, and in torch 2.11 not what `__get__` does
        bind = lambda function, self, _: _guard_types.MethodType(function, self)  # noqa: E731

    def guarded(self: _guard_Any, *args: _guard_Any, **kwargs: _guard_Any) -> _guard_Any:
        function = self.__dict__.get("_guard_forward") if name == "forward" else None
        if function is None:
            function = plain if bind is None else bind(plain, self, type(self))
        return guard.call(self, function, args, kwargs)

    wraps = _guard_functools.wraps(getattr(plain, "__func__", plain))
    setattr(cls, name, wraps(guarded))


def _guard_install(cls: _guard_Any, **known: _guard_Any) -> None:
    """Guard `ModelNew`. What is no class, or one of TorchScript or without attributes of its own, stays as it is."""
    if not isinstance(cls, type) or not cls.__dictoffset__ or issubclass(cls, _guard_torch.jit.ScriptModule):
        return
    guard, init = _Guard(**known), cls.__init__

    def __init__(self: _guard_Any, *args: _guard_Any, **kwargs: _guard_Any) -> None:
        try:
            given = _guard_copy.deepcopy((args, kwargs))  # the constructor may change them
        except Exception:  # what cannot be copied is used as it is
            given = (args, kwargs)
        around = (_guard_torch.get_rng_state(), _guard_torch.get_default_device(), _guard_torch.get_default_dtype())
        if init is not object.__init__:
            init(self, *args, **kwargs)
        guard.made(self, (*given, *around))

    cls.__init__ = _guard_functools.wraps(init)(__init__)  # type: ignore[method-assign]
    cls._guard = guard  # type: ignore[attr-defined]
    is_module = issubclass(cls, _guard_torch.nn.Module)
    if is_module:
        _guard_method(guard, cls, "forward")
    if not is_module or cls.__call__ is not _guard_torch.nn.Module.__call__:
        _guard_method(guard, cls, "__call__")

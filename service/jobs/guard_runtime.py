"""What an exported file holds behind its kernel; `guard.py` puts it there. It needs PyTorch and nothing else.

`_guard_install` has each call of `ModelNew` looked at first. A call that the kernel was not judged on goes to the
task's own code, which works on the kernel's own parameters and buffers.
"""

import concurrent.futures as _guard_futures
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

import torch as _guard_torch

_GUARD_ALIGN_BYTES = 64
_GUARD_SIGNED = (_guard_torch.int64, _guard_torch.int32, _guard_torch.int16, _guard_torch.int8)


class _GuardRecord:
    """What is known of one kernel: the tensors that its first call saw, and the task's model for its other calls."""

    def __init__(self, kernel: "_guard_weakref.ref[_guard_Any]") -> None:
        self.kernel = kernel
        self.seen: list[tuple[_guard_Any, int, int | None]] | None = None  # reference, address and version of each
        self.trained = False  # whether gradients were wanted behind that: some optimizers change no version
        self.model: _guard_Any = None
        self.modes: dict[str, bool] = {}  # of the model's modules, as its constructor left them
        self.told: set[str] = set()


class _Guard:
    """Decides for each call whether the kernel or the task's own code answers.

    `respects` are those in which the kernel takes its task for granted, `judged` the leaves of each set of inputs that
    it was judged on, `names` the task's names of tensors that have others in the kernel, `state` the dtype and device
    of each of the task's tensors, `changing` the names of those that calls change, `task` the task's source.
    """

    def __init__(
        self,
        respects: list[str],
        judged: list[list[dict[str, _guard_Any]]],
        names: dict[str, str],
        state: dict[str, list[str]],
        changing: list[str],
        task: str,
    ) -> None:
        self.respects, self.task = respects, task
        self.judged = [[self._known(leaf) for leaf in leaves] for leaves in judged]
        self.own_names = {known: own for own, known in names.items()}
        self.state = {name: (getattr(_guard_torch, dtype), device) for name, (dtype, device) in state.items()}
        self.changing = {self.own_names.get(name, name).rpartition(".")[2] for name in changing}
        self.records: dict[int, _GuardRecord] = {}
        self.inside = _guard_threading.local()
        self.lock = _guard_threading.Lock()
        self.module: _guard_Any = None

    @staticmethod
    def _known(leaf: dict[str, _guard_Any]) -> dict[str, _guard_Any]:
        if "value" in leaf:
            return leaf
        return {**leaf, "dtype": getattr(_guard_torch, leaf["dtype"]), "device": leaf["device"].split(":")[0]}

    def made(self, kernel: _guard_Any, args: _guard_Any, kwargs: _guard_Any, rng: _guard_Any) -> None:
        """Remember how a kernel was made. A function that it has chosen as its `forward` is guarded as well."""
        modes = {}
        if isinstance(kernel, _guard_torch.nn.Module):
            modes = {name: module.training for name, module in kernel.named_modules()}
        kernel.__dict__["_guard_made"] = (args, kwargs, rng, modes)
        self._take_forward(kernel)

    def _take_forward(self, kernel: _guard_Any) -> None:
        own = kernel.__dict__.pop("forward", None) if isinstance(kernel, _guard_torch.nn.Module) else None
        if own is not None:
            kernel.__dict__["_guard_forward"] = own

    def call(self, kernel: _guard_Any, function: _guard_Any, args: _guard_Any, kwargs: _guard_Any) -> _guard_Any:
        """Answer a call by `function`, which is the kernel, or by the task's own code."""
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
        inside.add(id(kernel))
        try:
            return function(*args, **kwargs)
        finally:
            inside.discard(id(kernel))
            self._take_forward(kernel)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable does it

    def _record(self, kernel: _guard_Any) -> _GuardRecord:
        key = id(kernel)
        record = self.records.get(key)
        if record is None or record.kernel() is not kernel:
            ref = _guard_weakref.ref(kernel, lambda _: self.records.pop(key, None))
            record = self.records[key] = _GuardRecord(ref)
        return record

    def refuses(self, kernel: _guard_Any, record: _GuardRecord, args: _guard_Any, kwargs: _guard_Any) -> str:
        """Why the task's own code answers a call; empty where the kernel does."""
        told = kernel.__dict__
        modes = told["_guard_made"][3]
        if "mode" in self.respects and modes and kernel.training != modes[""]:
            return "it is in another mode than it was judged in"
        leaves = self.leaves(args)
        if kwargs or not self.takes(leaves):
            return "its inputs are not like those that the kernel was judged on"
        held = self._held(kernel)
        if self._is_watched(leaves, held):
            return "torch looks into it (autocast, torch.func, forward-mode derivatives)"
        if _guard_torch.is_grad_enabled() and self._wants_gradients(kernel, leaves, held):
            record.trained = record.seen is not None
            return "gradients are wanted (not under torch.no_grad(), nor of parameters after eval())"
        if record.seen is None:
            if any(map(_guard_torch.nn.parameter.is_lazy, held)):
                return ""  # the kernel's call makes them
            if "_guard_called" in told:
                return "it is a copy of a model that was called before (make a model anew to use the kernel)"
            if not self._is_as_judged(kernel):
                return "its parameters are not of the dtypes and on the devices that the kernel was judged with"
            record.seen = [
                (_guard_weakref.ref(each), each.data_ptr(), None if each.is_inference() else each._version)
                for each in held
            ]
            told["_guard_called"] = True
        elif record.trained or self._has_changed(held, record.seen):
            return "parameters were changed after the kernel's first call (make the model anew to use the kernel)"
        return ""

    @staticmethod
    def _has_changed(held: list[_guard_Any], seen: list[tuple[_guard_Any, int, int | None]]) -> bool:
        if len(held) != len(seen):
            return True
        for each, (ref, address, version) in zip(held, seen, strict=True):
            if ref() is not each or each.data_ptr() != address:
                return True
            if version is not None and each._version != version:
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
        return any(len(leaves) == len(known) and all(map(self._is_like, leaves, known)) for known in self.judged)

    def _is_like(self, value: _guard_Any, known: dict[str, _guard_Any]) -> bool:
        if not isinstance(value, _guard_torch.Tensor):
            return "value" in known and self._is_same(value, known["value"])
        if "value" in known or value.dtype is not known["dtype"] or value.device.type != known["device"]:
            return False
        shape = value.shape
        if len(shape) != len(known["shape"]) or value.layout is not _guard_torch.strided or value.is_nested:
            return False
        if value.is_conj() or value.is_neg():
            return False
        if "shape" in self.respects and list(shape) != known["shape"]:
            return False
        if "stride" in self.respects:
            same = list(shape) == known["shape"] and list(value.stride()) == known["stride"]
            if not same and not (known["contiguous"] and value.is_contiguous()):
                return False
        if "negative" in self.respects and value.dtype in _GUARD_SIGNED and value.numel() and value.amin() < 0:
            return False
        return "alignment" not in self.respects or value.data_ptr() % _GUARD_ALIGN_BYTES == 0

    def _is_same(self, value: _guard_Any, known: _guard_Any) -> bool:
        """Whether values that are no tensors are alike. Floats were varied; a dtype is known by its name."""
        if type(value) in (bool, int, float, str, type(None)):
            return type(value) is type(known) and (type(value) is float or bool(value == known))
        return isinstance(known, str) and str(value).removeprefix("torch.") == known

    def _held(self, kernel: _guard_Any) -> list[_guard_Any]:
        """The tensors that the kernel may keep something of: parameters, and buffers that no call changes."""
        if not isinstance(kernel, _guard_torch.nn.Module):
            found = (self._tensor(kernel, self.own_names.get(name, name)) for name in self.state)
            return [each for each in found if each is not None]
        held: list[_guard_Any] = []
        modules: list[_guard_Any] = [kernel]
        for module in modules:  # which grows
            held += [each for each in module._parameters.values() if each is not None]
            held += [each for name, each in module._buffers.items() if each is not None and name not in self.changing]
            modules += [each for each in module._modules.values() if each is not None]
        return held

    def _is_watched(self, leaves: list[_guard_Any], held: list[_guard_Any]) -> bool:
        functorch = _guard_torch._C._functorch
        if _guard_torch.autograd.forward_ad._current_level >= 0 or functorch.peek_interpreter_stack() is not None:
            return True
        if _guard_torch._C._is_any_autocast_enabled() or (held and functorch.is_functorch_wrapped_tensor(held[0])):
            return True
        return any(isinstance(leaf, _guard_torch.Tensor) and leaf.is_meta for leaf in leaves)

    def _wants_gradients(self, kernel: _guard_Any, leaves: list[_guard_Any], held: list[_guard_Any]) -> bool:
        if getattr(kernel, "training", False) and any(each.requires_grad for each in held):
            return True
        return any(isinstance(leaf, _guard_torch.Tensor) and leaf.requires_grad for leaf in leaves)

    def _is_as_judged(self, kernel: _guard_Any) -> bool:
        for name, (dtype, device) in self.state.items():
            own = self._tensor(kernel, self.own_names.get(name, name))
            if own is not None and (own.dtype is not dtype or own.device.type != device or not own.is_contiguous()):
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
            args, kwargs, rng, _ = kernel.__dict__["_guard_made"]
            module = self._task_module()
            with _guard_torch.random.fork_rng(devices=[]):
                _guard_torch.set_rng_state(rng)
                record.model = module.Model(*args, **kwargs)
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
        first = kernel.__dict__["_guard_made"][3]
        if not first:
            return
        own = {name: module.training for name, module in kernel.named_modules()}
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
        rng = _guard_torch.get_rng_state()
        if init is not object.__init__:
            init(self, *args, **kwargs)
        guard.made(self, args, kwargs, rng)

    cls.__init__ = _guard_functools.wraps(init)(__init__)  # type: ignore[method-assign]
    cls._guard = guard  # type: ignore[attr-defined]
    is_module = issubclass(cls, _guard_torch.nn.Module)
    if is_module:
        _guard_method(guard, cls, "forward")
    if not is_module or cls.__call__ is not _guard_torch.nn.Module.__call__:
        _guard_method(guard, cls, "__call__")

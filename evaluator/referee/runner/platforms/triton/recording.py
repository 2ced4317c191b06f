"""Kernels of Triton in a candidate's process: they run in the interpreter, and the launches of a call are recorded.

What is recorded is a claim of this process. Another one makes the launches again (`checking`).
"""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDAOptions
from triton.runtime import autotuner, driver
from triton.runtime.jit import KernelInterface, type_canonicalisation_dict

from ..gpu.memory import span_bytes
from . import interpreting
from .interpreting import NotEmulated
from .watching import Fault, Region, Watch

_OPTIONS = {each.name for each in dataclasses.fields(CUDAOptions)} | {"warmup", "stream", "device"}
_MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
_MOST_VARIANTS = 64


class OutOfBounds(RuntimeError):
    """A kernel uses memory that no tensor of its arguments has."""


@dataclass
class Recorder:
    """The launches of one call, as JSON and the memory that they met.

    Attributes:
        run: whether kernels are run, too.
        room: bytes of memory that may still be recorded.
        events: what happened, in order: `{"memory": REGION, "blob": I}` or `{"launch": VARIANTS}`.
        regions: of each: first address, bytes, and bytes an element.
        blobs: memory as it was before a launch.
        problem: why the record is not whole.
    """

    run: bool
    room: int
    events: list[dict[str, Any]] = field(default_factory=list)
    regions: list[dict[str, Any]] = field(default_factory=list)
    blobs: list[torch.Tensor] = field(default_factory=list)
    problem: str = ""
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=dict)

    def expect(self, tensors: Iterable[torch.Tensor]) -> None:
        """These are inputs of the call, or the model's tensors."""
        self._spans += [(each.data_ptr(), span_bytes(each)) for each in tensors if each.numel()]

    def region(self, value: torch.Tensor) -> tuple[int, int]:
        """The number of the memory that a tensor lies in, and the offset of its first element there."""
        place = value.data_ptr()
        storage = value.untyped_storage()
        base, size = next(
            (span for span in self._spans if span[0] <= place < span[0] + span[1]),
            (storage.data_ptr(), storage.nbytes()),
        )
        for index, known in enumerate(self.regions):
            if known["base"] == base and known["bytes"] == size:
                return index, place - base
        self.regions.append({"base": base, "bytes": size, "element": value.element_size()})
        return len(self.regions) - 1, place - base

    def before(self, index: int) -> None:
        """Note what memory holds, if something else than a launch has written there."""
        content = _bytes_at(self.regions[index])
        digest = hash(content.numpy().tobytes())
        if self._known.get(index) == digest:
            return
        self._known[index] = digest
        self.room -= content.numel()
        if self.room < 0:
            self.problem = "the tensors are too large for a record"
            return
        self.events.append({"memory": index, "blob": len(self.blobs)})
        self.blobs.append(content.clone())

    def after(self, index: int) -> None:
        """A launch has had this memory; what it holds now is its doing."""
        self._known[index] = hash(_bytes_at(self.regions[index]).numpy().tobytes())


def _bytes_at(region: Mapping[str, Any]) -> torch.Tensor:
    import ctypes

    size = region["bytes"]
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer((ctypes.c_char * size).from_address(region["base"]), dtype=torch.uint8)


@dataclass
class _State:
    """What launches of this process look at: the recorder, if a call is recorded, and whether they are only noted."""

    recorder: Recorder | None = None
    noted: list[dict[str, Any]] | None = None
    others: tuple[dict[str, Any], ...] = ()


class Kernel(KernelInterface):  # type: ignore[misc]  # triton has no annotations
    """What `triton.jit` makes of a function: a launch runs it in the interpreter."""

    def __init__(self, fn: Any, state: _State) -> None:
        self.fn = fn
        self.state = state
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.constants = [
            name
            for name, each in self.signature.parameters.items()
            if each.annotation is tl.constexpr or "constexpr" in str(each.annotation)
        ]
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self._made: Any = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Another kernel calls it."""
        return self._function()(*given, **named)

    def warmup(self, *given: Any, grid: Any, **named: Any) -> None:
        """Compile it ahead: nothing to do."""

    def _function(self) -> Any:
        if self._made is None:
            self._made = interpreting.from_function(self.fn)
        return self._made

    def run(self, *given: Any, grid: Any, warmup: bool = False, **named: Any) -> None:
        """One launch.

        Raises:
            KeyError: an option is none of a launch.
            OutOfBounds: it uses memory that it must not.
            NotEmulated: the interpreter cannot run it.
        """
        with torch._C.DisableTorchFunctionSubclass():
            self._launch(given, grid, named)

    def _launch(self, given: tuple[Any, ...], grid: Any, named: dict[str, Any]) -> None:
        options = {name: named.pop(name) for name in [*named] if name not in self.arg_names}
        for name in options:
            if name not in _OPTIONS:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        bound = self.signature.bind(*given, **named)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        size = _grid(grid(arguments) if callable(grid) else grid)
        state, recorder = self.state, self.state.recorder
        tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        if recorder is not None or state.noted is not None:
            variant = {
                "kernel": self.__name__, "grid": list(size), "options": _plain_options(options),
                "arguments": {name: _described(name, value, recorder) for name, value in arguments.items()},
            }  # fmt: skip
            if state.noted is not None:
                state.noted.append(variant)
                return
        if recorder is None:
            self._interpret(arguments, tensors, size)
            return
        used = sorted({recorder.region(value)[0] for value in tensors.values()})
        for index in used:
            recorder.before(index)
        recorder.events.append({"launch": [variant, *state.others]})
        if recorder.run:
            self._interpret(arguments, tensors, size)
        for index in used:
            recorder.after(index)

    def _interpret(
        self, arguments: dict[str, Any], tensors: Mapping[str, torch.Tensor], size: tuple[int, int, int]
    ) -> None:
        given = {
            name: interpreting.pointer(value.data_ptr(), type_of(value.dtype)) if name in tensors else value
            for name, value in arguments.items()
        }
        regions: dict[int, Region] = {}
        for name, value in tensors.items():
            storage = value.untyped_storage()
            regions.setdefault(storage.data_ptr(), Region(storage.data_ptr(), storage.nbytes(), name))
        try:
            interpreting.run(
                self._function(), given, constants=self.constants, grid=size, watch=Watch(tuple(regions.values()))
            )
        except Fault as fault:
            raise OutOfBounds(f"memory out of bounds: {fault}") from None


def type_of(dtype: torch.dtype) -> str:
    """What Triton calls a dtype: `fp32`."""
    name = str(dtype).removeprefix("torch.")
    return str(type_canonicalisation_dict[name])


def _grid(given: Any) -> tuple[int, int, int]:
    size = tuple(int(each) for each in (given if isinstance(given, tuple | list) else (given,)))
    if not 1 <= len(size) <= 3:
        raise ValueError(f"a grid has one to three dimensions, not {len(size)}")
    x, y, z = (*size, 1, 1)[:3]
    for number, (each, most) in enumerate(zip((x, y, z), _MOST_PROGRAMS, strict=True)):
        if not 0 <= each <= most:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: {each} programs in direction {'xyz'[number]}")
    return x, y, z


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
    return {name: value for name, value in options.items() if name in kept and isinstance(value, int)}


def _described(name: str, value: Any, recorder: Recorder | None) -> dict[str, Any]:
    """An argument as JSON."""
    if isinstance(value, torch.Tensor):
        index, offset = recorder.region(value) if recorder is not None else (0, 0)
        return {"region": index, "offset": offset, "dtype": type_of(value.dtype)}
    value = value.value if isinstance(value, tl.constexpr) else value
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, tl.dtype):
        return {"type": value.name}
    if isinstance(value, Kernel):
        return {"function": value.__name__}
    if isinstance(value, tuple | list):
        return {"tuple": [_described(name, each, recorder) for each in value]}
    if hasattr(value, "item"):  # a number of numpy's
        return {"value": value.item()}
    raise NotEmulated(f"argument {name} is of type {type(value).__name__}, which no launch without a GPU can take")


class _Driver:
    """In place of a GPU's driver: an A100, as `seeming` describes it."""

    class utils:
        """What it tells of the device."""

        @staticmethod
        def get_device_properties(device: int = 0) -> dict[str, int]:
            """Sizes."""
            return {
                "max_shared_mem": 166912, "max_num_regs": 65536, "multiprocessor_count": 108, "warpSize": 32,
                "sm_clock_rate": 1410000, "mem_clock_rate": 1593000, "mem_bus_width": 5120,
            }  # fmt: skip

    def get_current_target(self) -> Any:
        """The architecture."""
        return GPUTarget("cuda", 80, 32)

    def get_active_torch_device(self) -> torch.device:
        """The device of tensors."""
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_device_interface(self) -> Any:
        """What torch offers of it."""
        return torch.cuda

    def get_current_stream(self, device: Any = None) -> int:
        """The only one."""
        return 0


def begin() -> _State:
    """Have `triton.jit` and `triton.autotune` of this process interpret; the state that launches look at."""
    interpreting.begin()
    state = _State()

    def jit(fn: Any = None, **_: Any) -> Any:
        return (lambda each: Kernel(each, state)) if fn is None else Kernel(fn, state)

    def tuned(self: Any, *given: Any, **named: Any) -> None:
        _tuned(self, state, given, named)

    for holder in (triton, triton.runtime.jit, triton.language):
        if hasattr(holder, "jit"):
            holder.jit = jit
    autotuner.Autotuner.run = tuned
    driver.set_active(_Driver())
    return state


def _tuned(tuner: Any, state: _State, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """A launch of a kernel with configurations: the first runs, the others are noted."""
    tuner.nargs = dict(zip(tuner.arg_names, given, strict=False))
    configs = tuner.prune_configs(named) if len(tuner.configs) > 1 else tuner.configs
    for config in configs:
        if conflicts := named.keys() & config.kwargs.keys():
            raise ValueError(f"Conflicting meta-parameters: {', '.join(conflicts)}")
    others: list[dict[str, Any]] = []
    if state.recorder is not None:
        state.noted = others
        try:
            for config in configs[1:_MOST_VARIANTS]:
                tuner.fn.run(*given, **named, **config.all_kwargs())
        finally:
            state.noted = None
    first = configs[0]
    full = {**tuner.nargs, **named, **first.all_kwargs()}
    if first.pre_hook is not None:
        first.pre_hook(full)
    tuner.pre_hook(full, reset_only=True)
    tuner.best_config = first
    state.others = tuple(others)
    try:
        tuner.fn.run(*given, **named, **first.all_kwargs())
    finally:
        state.others = ()

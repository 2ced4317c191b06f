"""Compiles recorded launches for real GPUs by Triton's own compiler: no GPU and no driver is needed."""

import contextlib
import importlib.util
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.backends.nvidia import driver as nvidia_driver
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from ..gpu.machine_code import Compiled, instructions, occupancy, resources

_MAX_ERROR = 3000
_MOST_SHARED = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100": 227 << 10}
"""Bytes of shared memory that a block can have."""

_DTYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64, "u1": torch.bool,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
}  # fmt: skip


@dataclass(frozen=True)
class _Pointer:
    """What stands for a tensor on a GPU: its dtype, and how its first element is aligned."""

    dtype: torch.dtype
    offset: int

    def data_ptr(self) -> int:
        """An address of that alignment."""
        return (1 << 20) + self.offset

    def ptr_range(self) -> int:
        """No range is known."""
        return 0


def load(path: Path) -> ModuleType:
    """The kernels of a file, for the compiler.

    Raises:
        Exception: whatever Triton has against it.
    """
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(variant: Mapping[str, Any]) -> str:
    """A launch's kernel and configuration in words: what a person tells configurations apart by."""
    given = {
        name: each["value"] for name, each in variant["arguments"].items() if "value" in each and name.isupper()
    } | variant["options"]
    return str(variant["kernel"]) + "".join(
        f", {name} {value}" for name, value in given.items() if value is not None and (name, value) != ("num_ctas", 1)
    )


def compile_all(
    path: Path, variants: Sequence[Mapping[str, Any]], architecture: str, until: Callable[[], bool]
) -> Compiled:
    """Compile launches for an architecture, the first configuration of each kernel first.

    Args:
        path: a file of kernels (`source.Kernels.text`).
        variants: the launches, each another kernel, configuration or kind of arguments.
        architecture: `sm_80` and the like.
        until: whether there is time for more.
    """
    # Triton finds its backends by what pip has written of it, which a container is not shown.
    backends.setdefault("nvidia", Backend(nvidia_compiler.CUDABackend, nvidia_driver.CudaDriver))
    os.environ["TRITON_CACHE_DIR"] = str(path.parent / f"compiled_{architecture}")
    triton.knobs.nvidia.dump_ptxas_log = True
    try:
        module: ModuleType | Exception = load(path)
    except Exception as refused:
        module = refused
    found: list[Compiled] = []
    for variant in variants:
        if not found or until():
            found.append(_compile(module, variant, architecture, count=not found))
    return _together(architecture, found)


def _together(architecture: str, each: Sequence[Compiled]) -> Compiled:
    """What came of all launches on one architecture. One that does not compile is an error of all."""
    sass: dict[str, int] = {}
    for one in each[:1]:
        sass = dict(one.sass)
    fits = [one for one in each if not one.error]
    # Triton's tuner leaves out a configuration that needs more than there is, as long as another one is left.
    error = next((one.error for one in each if one.error and not (fits and _TOO_MUCH in one.error)), "")
    kernels = tuple(kernel for one in each for kernel in one.kernels)
    return Compiled(architecture, error, kernels, sass, round(sum(one.seconds for one in each), 3))


_TOO_MUCH = "more shared memory than"


def _compile(module: ModuleType | Exception, variant: Mapping[str, Any], architecture: str, *, count: bool) -> Compiled:
    """Compile a launch; its instructions are counted only if asked for, since the disassembler takes half a second."""
    start = time.perf_counter()
    printed = io.StringIO()
    number = int(architecture.removeprefix("sm_").rstrip("af"))
    try:
        if isinstance(module, Exception):
            raise module
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            made, warps = _made(module, variant, GPUTarget("cuda", number, 32))
    except Exception as refused:
        text = f"{variant['kernel']}{_line(module, variant, refused)}: {type(refused).__name__}: {refused}"
        return Compiled(architecture, text[:_MAX_ERROR], seconds=round(time.perf_counter() - start, 3))
    shared = int(made.metadata.shared)
    kernels = resources(printed.getvalue())
    for kernel in kernels:
        # What the launch asks for: Triton's shared memory is dynamic.
        kernel["kernel"], kernel["shared_bytes"] = described(variant), shared
        kernel["occupancy"] = occupancy(architecture, kernel["registers"], shared, warps * 32)
    tools = Path(triton.__file__).parent / "backends" / "nvidia"
    sass = instructions(tools, made.asm["cubin"]) if count else {}
    error = ""
    if shared > (most := _MOST_SHARED.get(architecture, shared)):
        error = f"{described(variant)}: it needs {shared} bytes, {_TOO_MUCH} a block can have ({most})"
    return Compiled(architecture, error, tuple(kernels), sass, round(time.perf_counter() - start, 3))


def _line(module: ModuleType | Exception, variant: Mapping[str, Any], refused: Exception) -> str:
    """Where in the file the compiler stopped; it counts lines from the kernel's own first one."""
    row = getattr(getattr(refused, "node", None), "lineno", None)
    first = getattr(getattr(module, variant["kernel"], None), "starting_line_number", None)
    return f", line {first + row}" if row is not None and first is not None else ""


def _made(module: ModuleType, variant: Mapping[str, Any], target: Any) -> tuple[Any, int]:
    """The compiled kernel, and how many warps a block of it has."""
    kernel = getattr(module, variant["kernel"])
    backend = make_backend(target)
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    given = {name: _argument(module, each) for name, each in variant["arguments"].items()}
    options = {**variant["options"], "debug": False, "instrumentation_mode": ""}
    bound, specialization, asked = binder(**given, **options)
    parsed, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, asked)
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=target, options=parsed.__dict__), int(parsed.num_warps)


def _argument(module: ModuleType, told: Mapping[str, Any]) -> Any:
    if "region" in told:
        return _Pointer(_DTYPES[told["dtype"]], told["offset"])
    if "type" in told:
        return tl.str_to_ty(told["type"], None)
    if "function" in told:
        return getattr(module, told["function"])
    if "tuple" in told:
        return tuple(_argument(module, each) for each in told["tuple"])
    return told["value"]

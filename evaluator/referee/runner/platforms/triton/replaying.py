"""Makes recorded launches again, in a process that is forked for one run and holds the kernels alone."""

import ast
import ctypes
import mmap
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton.language as tl

from . import interpreting, source, watching
from .records import Record
from .watching import RaceWatch, Watch

_FIRST, _APART = 1 << 44, 1 << 36  # so that no offset of 32 bits leads from one region into another
_MAP_FIXED_NOREPLACE = 0x100000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip


class Memory:
    """The memory of the launches, each region far from the others."""

    def __init__(self, record: Record) -> None:
        self.bases: list[int] = []
        self.content: dict[int, Any] = {}
        for index, region in enumerate(record.regions):
            base = _FIRST + index * _APART
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
            if _libc.mmap(base, max(1, region.size), protection, flags, -1, 0) != base:
                raise MemoryError("no memory for the tensors of the launches")
            self.bases.append(base)
            array = (ctypes.c_uint8 * region.size).from_address(base)
            self.content[index] = np.ctypeslib.as_array(array) if region.size else np.empty(0, dtype=np.uint8)


def kernels_of(path: Path) -> dict[str, Any]:
    """The kernels of a file (`source.Kernels.text`), for the interpreter, and the constants of it by name."""
    text = path.read_text()
    names: dict[str, Any] = {}
    tree = ast.parse(text)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            exec(compile(ast.Module(body=[node], type_ignores=[]), str(path), "exec"), names)  # noqa: S102
    names.pop("_jit", None)
    names["__builtins__"] = dict(source.BUILTINS)
    made = {
        node.name: (interpreting.from_tree(node, str(path), names), _constants(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    names.update({name: function for name, (function, _) in made.items()})
    return made


def _constants(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in function.args.args if each.annotation and "constexpr" in ast.unparse(each.annotation)]


def replay(
    path: Path, record: Record, *, order: str, variant: int, races: bool, wanted: Container[int]
) -> tuple[tuple[str, str, list[str], dict[str, str]], dict[int, Any]]:
    """Make all launches again.

    Args:
        path: the file of kernels.
        record: the launches.
        order: how programs follow each other.
        variant: which configuration of each launch; those that have fewer take their last.
        races: whether data races are looked for.
        wanted: the regions whose memory is wanted at the end.

    Returns:
        What was found, with the text of it (`runs.Run`), what could not be told of races, and what else was noted
        (`interpreting.Builder.notes`); and the memory at the end.
    """
    interpreting.begin()
    unclear: list[str] = []
    try:
        kernels = kernels_of(path)
        memory = Memory(record)
        for event in record.events:
            if isinstance(event[0], dict):
                chosen = event[min(variant, len(event) - 1)]
                unclear += _launch(kernels, memory, record, chosen, order, races=races)
            else:
                index, content = event
                memory.content[index][:] = np.frombuffer(content, dtype=np.uint8)
    except watching.Fault as fault:
        return (fault.code, str(fault), [], {}), {}
    except (interpreting.NotEmulated, interpreting.KernelError, MemoryError) as error:
        return ("not_run", str(error) or "not enough memory", [], {}), {}
    kept = {index: each for index, each in memory.content.items() if index in wanted}
    return ("", "", unclear, interpreting.notes()), kept


def _launch(
    kernels: Mapping[str, Any], memory: Memory, record: Record, variant: Mapping[str, Any], order: str, *, races: bool
) -> Sequence[str]:
    function, constants = kernels[variant["kernel"]]
    regions: dict[int, watching.Region] = {}
    for name, each in variant["arguments"].items():
        if "region" in each:
            index = each["region"]
            region = record.regions[index]
            element = region.element if region.element in (1, 2, 4, 8) else 1
            regions.setdefault(index, watching.Region(memory.bases[index], region.size, name, element))
    watch = RaceWatch(tuple(regions.values())) if races else Watch(tuple(regions.values()))
    given = {name: _argument(kernels, memory, each) for name, each in variant["arguments"].items()}
    grid = (variant["grid"][0], variant["grid"][1], variant["grid"][2])
    interpreting.run(function, given, constants=constants, grid=grid, watch=watch, order=order)
    return watch.unclear if isinstance(watch, RaceWatch) else ()


def _argument(kernels: Mapping[str, Any], memory: Memory, told: Mapping[str, Any]) -> Any:
    if "region" in told:
        return interpreting.pointer(memory.bases[told["region"]] + told["offset"], told["dtype"])
    if "function" in told:
        return kernels[told["function"]][0]
    if "type" in told:
        return tl.str_to_ty(told["type"], None)
    if "tuple" in told:
        return tuple(_argument(kernels, memory, each) for each in told["tuple"])
    return told["value"]

"""The vectors that TorchInductor generates: their width, and the dimension along which they run."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

HALF_VECTORS = "kernelwright.half_vectors"
"""Option: vectors half as wide as the machine's."""
OUTER_VECTORS = "kernelwright.outer_vectors"
"""Option: vectors along a dimension of the results and not along one that is reduced."""
_OPTION_PREFIX = "kernelwright."
_DIMENSION = re.compile(r"d(\d+)$")


def inductor_settings(options: dict[str, Any]) -> dict[str, Any]:
    """TorchInductor's settings for these options. A machine without half vectors keeps full ones."""
    settings = {name: value for name, value in options.items() if not name.startswith(_OPTION_PREFIX)}
    # `vec_isa_ok`: TorchInductor need not compile a program to find out whether the processor runs its vectors.
    settings |= {"fx_graph_cache": False, "compile_threads": 1, "cpp.vec_isa_ok": True}
    if options.get(HALF_VECTORS):
        import torch._inductor.config as config
        import torch._inductor.cpu_vec_isa as machine

        known: Any = machine.valid_vec_isa_list
        half = vector_bytes(settings) * 8 // 2
        with config.patch(settings):
            widths = {isa.bit_width() for isa in known()}
        if half in widths:
            settings["cpp.simdlen"] = half
    return settings


def vector_bytes(settings: dict[str, Any]) -> int:
    """Width of the vectors that TorchInductor generates under these settings; 0 for none."""
    import torch._inductor.config as config
    import torch._inductor.cpu_vec_isa as machine

    pick: Any = machine.pick_vec_isa
    with config.patch(settings):
        return int(pick().bit_width()) // 8


@contextlib.contextmanager
def vectors_along_results(wanted: bool) -> Iterator[None]:
    """If `wanted`, vectorise reductions along a dimension of their results while the context is open.

    TorchInductor does not analyse an index that is read from memory. For a sum of looked-up rows it runs vectors along
    the sum and gathers each of them from many rows. Along the rows, the same vectors are plain loads.
    """
    if not wanted:
        yield
        return
    from torch._inductor.codegen.cpp import TilingSelect

    chosen: Any = TilingSelect._select_tiling_indices

    def select(self: Any, functions: Any, sizes: Any, factor: int) -> list[int]:
        found: list[int] = chosen(self, functions, sizes, factor)
        group, summed = max(sizes, key=lambda item: len(item[1]))
        outer = _along_results(functions, sizes, factor, len(group)) if summed else None
        return found if outer is None or all(index < len(group) for index in found) else [outer]

    with mock.patch.object(TilingSelect, "_select_tiling_indices", select):
        yield


def _along_results(functions: Any, sizes: Any, factor: int, results: int) -> int | None:
    """The dimension to run vectors along, of the first `results`; None: there is none.

    Every access to memory must step through it by one or not at all, and it must hold at least half a vector.
    """
    import torch._inductor.codegen.cpp as cpp
    from torch._inductor import dependencies

    stride_of: Any = cpp.stride_at_vec_range  # type: ignore[attr-defined]
    steps: dict[int, set[Any]] = {}
    for function, size in zip(functions, sizes, strict=True):
        accesses = dependencies.extract_read_writes(function, *size)
        for access in [*accesses.reads, *accesses.writes]:
            for symbol in access.index.free_symbols:
                if match := _DIMENSION.match(symbol.name):
                    step = stride_of(access.index, symbol, factor)
                    steps.setdefault(int(match[1]), set()).add(step)
    group, _ = max(sizes, key=lambda item: len(item[1]))
    for dimension in reversed(range(results)):
        if steps.get(dimension, set()) - {0} == {1} and group[dimension] >= factor // 2:
            return dimension
    return None

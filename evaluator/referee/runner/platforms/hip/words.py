"""What is particular to HIP's text: words that the emulation has nothing for, and such as tell it from a GPU."""

import re
from pathlib import Path

from ..cuda import source
from ..cuda.building import Dialect
from ..cuda.source import Remark

_INCLUDE = Path(__file__).parent / "include"
_LACKS = {
    "cooperative_groups": "cooperative groups",
    "this_thread_block": "cooperative groups",
    "hipLaunchCooperativeKernel": "a cooperative launch",
    "hipLaunchKernel": "a launch by a pointer to arguments",
    "hipModuleLaunchKernel": "a launch by a pointer to arguments",
    "hipExtLaunchKernelGGL": "a launch with events",
    "hipTextureObject_t": "textures",
    "rocwmma": "the library rocWMMA",
    "nvcuda": "CUDA's tensor cores",
    "hipcub": "the library hipCUB",
    "rocprim": "the library rocPRIM",
    "hiprand_init": "hipRAND",
    "rocrand_init": "rocRAND",
    "hipblasCreate": "hipBLAS",
    "rocblas_create_handle": "rocBLAS",
    "__syncwarp": "a barrier of a wavefront",
    "__match_any_sync": "__match_any_sync",
}
_BUILTIN = re.compile(r"__builtin_(?:amdgcn|nontemporal)_\w+|__ockl_\w+|__ocml_\w+|__hip_atomic_\w+")
_FORBIDDEN = re.compile(r"__clang\w*|__llvm__|__has_builtin|__has_attribute|__has_include|__OPTIMIZE__|__cpp_\w+")
"""Beside those of any source: the emulation's compiler is another one than HIP's."""


def _not_emulated(text: str) -> list[Remark]:
    found = []
    for token in source.tokens_of(text):
        if token.kind not in ("word", "directive"):
            continue
        for word in re.findall(r"[A-Za-z_]\w*", token.text) if token.kind == "directive" else (token.text,):
            if word in _LACKS:
                found.append(Remark(token.line, f"{word}: {_LACKS[word]}"))
            elif _BUILTIN.fullmatch(word):
                found.append(Remark(token.line, f"{word}: an instruction of AMD's GPUs by name"))
    return found


def _forbidden(text: str) -> list[Remark]:
    return [
        Remark(token.line, word)
        for token in source.tokens_of(text)
        if token.kind in ("word", "directive")
        for word in re.findall(r"[A-Za-z_]\w*", token.text)
        if _FORBIDDEN.fullmatch(word)
    ]


HIP = Dialect(
    name="hip",
    of_extension="#include <torch_on_hip.h>\n",
    of_programs="#include <hip/hip_runtime.h>\n",
    defines='#include "gfx90a.h"\n',
    folders=(_INCLUDE,),
    plain_kernels=False,
    not_emulated=_not_emulated,
    forbidden=_forbidden,
)
"""HIP, run as for gfx90a."""

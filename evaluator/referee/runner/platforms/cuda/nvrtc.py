"""Compiles kernels for real GPUs by NVIDIA's run-time compiler, where it is installed: no GPU and no driver is needed.

NVIDIA's libraries come from their own wheels (`kernelwright[cuda]`), under NVIDIA's licence; none of them is a part of
this project. What they print is for people and models; whether an architecture compiles is what counts.
"""

import ctypes
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ....protocol.gpu_checks import LIBRARY, toolkit
from ..gpu.machine_code import Compiled, instructions, resources
from . import source

_HEADERS = (
    "cuda_fp16.h", "cuda_bf16.h", "mma.h", "cooperative_groups.h", "cooperative_groups/reduce.h", "cuda_pipeline.h",
    "math_constants.h", "cuda_pipeline_primitives.h",
)  # fmt: skip
# What nvcc brings of the host's headers, and names of torch's that kernels use.
_PRELUDE = """
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;
typedef unsigned long long uint64_t; typedef unsigned long uintptr_t;
"""
_NARROW = """
namespace c10 { using Half = __half; using BFloat16 = __nv_bfloat16; }
namespace at { using c10::Half; using c10::BFloat16; }
"""
_MAX_LOG = 3000


@dataclass(frozen=True)
class Given:
    """A source, and whether NVRTC compiles it on a GPU's host, too: then all of it, and with nothing beside it."""

    text: str
    plain: bool = False


def text_for(sources: Sequence[Given]) -> str:
    """The kernels of all sources as one program for a GPU.

    Raises:
        source.SourceError: a source cannot be read.
    """
    wanted: list[str] = []
    for given in sources:
        for token in source.tokens_of(given.text):
            if token.kind == "directive" and (found := re.match(r"#\s*include\s*[<\"]([^>\"]+)", token.text)):
                wanted += [found[1]] if found[1] in _HEADERS and found[1] not in wanted else []
    bare = all(given.plain for given in sources)
    narrow = not bare and any("Half" in given.text or "BFloat16" in given.text for given in sources)
    if narrow:
        wanted = list(dict.fromkeys(["cuda_fp16.h", "cuda_bf16.h", *wanted]))
    headers = "".join(f"#include <{name}>\n" for name in wanted)
    parts = [] if bare else [headers + _PRELUDE + (_NARROW if narrow else "")]
    for number, given in enumerate(sources):
        text = given.text if given.plain else source.device_only(given.text)
        parts.append(f'#line 1 "cuda_sources{f"[{number}]" if number else ""}"\n{text}\n')
    return "".join(parts)


def compile_all(sources: Sequence[Given], kernels: Sequence[str], architectures: Sequence[str]) -> list[Compiled]:
    """Compile for each architecture, all at once. `kernels` are instances of templates to be made.

    Raises:
        source.SourceError: a source cannot be read.
        OSError: the library cannot be loaded.
    """
    place = toolkit()
    assert place is not None
    text = text_for(sources)
    words = [] if all(given.plain for given in sources) else ["-default-device"]
    library = _load(place / LIBRARY)
    with ThreadPoolExecutor(len(architectures)) as pool:
        return list(pool.map(lambda each: _compile(library, place, text, kernels, each, words), architectures))


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _compile(
    library: ctypes.CDLL, place: Path, text: str, kernels: Sequence[str], architecture: str, options: Sequence[str]
) -> Compiled:
    start = time.perf_counter()
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"cuda_sources", 0, None, None)
    try:
        for name in kernels:
            library.nvrtcAddNameExpression(program, name.encode())
        words = [
            f"--gpu-architecture={architecture}", "--std=c++17", "-lineinfo", "--ptxas-options=-v",
            f"-I{place / 'include'}", *options,
        ]  # fmt: skip
        given = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        status = library.nvrtcCompileProgram(program, len(words), given)
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(1, size.value))
        library.nvrtcGetProgramLog(program, log)
        printed = log.value.decode("utf-8", "replace")
        if status:
            said = printed.strip() or library.nvrtcGetErrorString(status).decode()
            return Compiled(architecture, said[:_MAX_LOG], seconds=round(time.perf_counter() - start, 3))
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(max(1, size.value))
        library.nvrtcGetCUBIN(program, cubin)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    found = tuple(resources(printed))
    sass = instructions(place, cubin.raw[: size.value])
    return Compiled(architecture, "", found, sass, round(time.perf_counter() - start, 3))

"""Builds a candidate's CUDA C++ for the host: as an extension of torch, and as programs that repeat launches."""

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from . import source
from .library import prepare

INCLUDE = prepare.INCLUDE
_NAME = "cuda_on_host"
_MAX_ERROR = 6000
_PYBIND = re.compile(r"\bpy::|\bpybind11\b")
"""What bindings.h has nothing in place of."""
_LACKS = re.compile(
    "error: .*(?:is not a member of|has not been declared|was not declared|does not name a type|is not a namespace-name"
    "|incomplete type|no match for|no matching function|redefinition of|.*cuh::(?:Module|Convert))"
)
"""Errors of g++ about a name that it lacks, which torch's whole header may bring, or that came twice."""
_TOLD = ("-fmax-errors=8", "-fno-diagnostics-show-option", "-fdiagnostics-color=never")


@dataclass(frozen=True)
class Dialect:
    """What differs between the languages that the emulation runs.

    Attributes:
        name: of the platform, and of the folder that a candidate's extensions are built in.
        of_extension: what follows the emulation's header in an extension.
        of_programs: what follows it in a program of kernels alone.
        defines: what a compiler for GPUs defines, for such a program.
        folders: where headers lie that go before the emulation's own.
        plain_kernels: whether Python may launch a kernel (`torch.cuda._compile_kernel`).
        not_emulated: what a source uses that the emulation has nothing for, beside what `source.rewrite` tells.
        forbidden: words that tell the emulation, beside those.
    """

    name: str
    of_extension: str
    of_programs: str
    defines: str
    folders: tuple[Path, ...] = ()
    plain_kernels: bool = True
    not_emulated: Callable[[str], list[source.Remark]] = field(default=lambda _: [])
    forbidden: Callable[[str], list[source.Remark]] = field(default=lambda _: [])


CUDA = Dialect(
    "cuda", "", "", "#define __CUDA_ARCH__ 800\n#define __CUDACC__ 1\n#define __CUDACC_RTC__ 1\n"
)  # fmt: skip


class BuildError(RuntimeError):
    """The source does not compile; the text is the compiler's."""


@dataclass(frozen=True)
class Sources:
    """What a candidate gave to one `load_inline`, or to one `_compile_kernel` (`plain`: the kernel alone)."""

    name: str
    cpp: tuple[str, ...]
    cuda: tuple[str, ...]
    functions: Mapping[str, str]
    plain: bool = False


def extension_text(
    given: Sources, dialect: Dialect = CUDA, *, whole: bool = False
) -> tuple[str, list[source.Rewritten]]:
    """One C++ source of the extension, and what the rewriting of each CUDA source says.

    Args:
        given: the sources.
        dialect: their language.
        whole: whether it starts with all of torch's header and is bound by pybind11, which takes five times as long
            to compile.

    Raises:
        BuildError: a source cannot be read.
    """
    # A precompiled header serves only where nothing comes before it.
    parts = [
        ("#include <torch/extension.h>\n" if whole else "") + "#include <torch_on_host.h>\n" + dialect.of_extension
    ]
    rewritten = []
    for kind, texts in (("cpp", given.cpp), ("cuda", given.cuda)):
        for number, text in enumerate(texts):
            name = f"{kind}_sources" + (f"[{number}]" if len(texts) > 1 else "")
            try:
                made = source.rewrite(text, number)
            except source.SourceError as error:
                raise BuildError(f"{name}, {error}") from None
            if kind == "cuda":
                rewritten.append(made)
            parts.append(f'#line 1 "{name}"\n{made.text}\n')
    lines = [f'  m.def("{name}", &{name}, "{text}");' for name, text in given.functions.items()]
    if given.functions:
        parts.append('#line 1 "bindings"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n' + "\n".join(lines) + "\n}\n")
    return "".join(parts), rewritten


def replay_text(given: Sequence[Sources], kernels: Sequence[str], dialect: Dialect = CUDA) -> str:
    """A program of the candidate's kernels alone, that makes recorded launches again.

    Args:
        given: the sources.
        kernels: the kernels that were launched, as the compiler names them.
        dialect: their language.

    Raises:
        BuildError: a source cannot be read.
    """
    parts = ['#include "replay.h"\n' + dialect.of_programs + DEVICE_ONLY + dialect.defines]
    variables: list[str] = []
    defined: set[str] = set()
    number = 0
    for each in given:
        for text in each.cuda:
            try:
                made = source.rewrite(source.device_only(text), number)
            except source.SourceError as error:
                raise BuildError(str(error)) from None
            variables += [name for name in made.variables if name not in variables]
            defined |= made.kernels.keys()
            parts.append(f'#line 1 "cuda_sources{f"[{number}]" if number else ""}"\n{made.text}\n')
            number += 1
    for kernel in kernels:
        found = _KERNEL_NAME.fullmatch(kernel)
        if found is None or found["name"].rpartition("::")[2] not in defined:
            raise BuildError(f"the record of launches names what is no kernel of the sources: {kernel[:80]}")
    entries = ", ".join(f'{{"{name}", cuh::thunk<({name})>}}' for name in kernels)
    symbols = ", ".join(f'{{"{name}", (void*)&{name}, sizeof({name})}}' for name in variables)
    parts.append(
        f'#line 1 "launches"\nint main(int cuh_count, char** cuh_words) {{\n'  # may hide no kernel's name
        f"  return cuh::replay(cuh_count, cuh_words, {{{entries}}}, {{{symbols}}});\n}}\n"
    )
    return "".join(parts)


# Words that switch checks off mean nothing from here on, however a source spells them: what tokens are pasted to is a
# macro, too. Then come names of torch's that kernels use, where torch's headers are not.
_UNCHECKED = (
    "no_sanitize", "no_sanitize_thread", "no_sanitize_address", "no_sanitize_undefined", "no_address_safety_analysis",
)  # fmt: skip
DEVICE_ONLY = (
    "#undef __SANITIZE_THREAD__\n#undef __SANITIZE_ADDRESS__\n"
    + "".join(f"#define {word} cuh_nothing\n#define __{word}__ cuh_nothing\n" for word in _UNCHECKED)
    + """
namespace c10 { using Half = __half; using BFloat16 = __nv_bfloat16; }
namespace at { using c10::Half; using c10::BFloat16; }
"""
)
_KERNEL_NAME = re.compile(r"(?P<name>[A-Za-z_][\w:]*)(?:<[\w:<>, *&()-]*>)?")


def build_extension(given: Sources, folder: Path, dialect: Dialect = CUDA) -> tuple[ModuleType, list[source.Rewritten]]:
    """Compile and import an extension; one that was built before is imported at once.

    Raises:
        BuildError: it does not compile.
    """
    text, rewritten = extension_text(given, dialect)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = given.name if given.name.isidentifier() else _NAME
    library = folder / f"{name}-{digest}.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        whole = _PYBIND.search(text) is not None
        if not whole:
            try:
                _compile_extension(name, text, library, dialect, whole=False)
            except BuildError as error:
                if not _LACKS.search(str(error)):
                    raise
                whole = True
        if whole:
            _compile_extension(name, extension_text(given, dialect, whole=True)[0], library, dialect, whole=True)
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["__file__"] = str(library)
    return module, rewritten


def plain_text(given: Sources) -> str:
    """One C++ source of a kernel that is launched from Python, named as `_compile_kernel` is given it.

    Raises:
        BuildError: the source cannot be read.
    """
    [text] = given.cuda
    try:
        made = source.rewrite(text)
    except source.SourceError as error:
        raise BuildError(f"{given.name}, {error}") from None
    kernel = f"({given.name})"
    return f"""#include "plain.h"
#define __CUDA_ARCH__ 800
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#line 1 "cuda_sources"
{made.text}
#line 1 "launch"
extern "C" __attribute__((visibility("default"))) const char* cuh_launch(
    const unsigned* size, unsigned long dynamic_bytes, const char* kinds, void** given) {{
  return cuh::guarded([&] {{
    const cuh::Config config(dim3(size[0], size[1], size[2]), dim3(size[3], size[4], size[5]), dynamic_bytes);
    cuh::launch_plain(cuh::name_of<{kernel}>(), {kernel}, config, kinds, given);
  }});
}}
extern "C" __attribute__((visibility("default"))) int cuh_allow_shared(int bytes) {{
  return cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}}
"""


def build_plain(given: Sources, folder: Path) -> ctypes.CDLL:
    """Compile and load a kernel that is launched from Python; one that was built before is loaded at once.

    Raises:
        BuildError: it does not compile.
    """
    text = plain_text(given)
    library = folder / f"plain-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        written = library.with_suffix(".cpp")
        written.write_text(text)
        _link(folder, [*prepare.EXTENSION, f"-I{INCLUDE}"], written, library)
        written.unlink()
    return ctypes.CDLL(str(library))


def _compile_extension(name: str, text: str, library: Path, dialect: Dialect, *, whole: bool) -> None:
    written = library.with_suffix(".cpp")
    written.write_text(text)
    own = [*(f"-I{each}" for each in dialect.folders), f"-I{INCLUDE}"]
    if not whole:
        own = [f"-I{prepare.READY / 'extension'}", *own, f"-I{INCLUDE / 'instead'}"]
    words = [*prepare.EXTENSION, f"-DTORCH_EXTENSION_NAME={name}", *own, *prepare.torch_folders()]
    _link(library.parent, words, written, library, "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")
    written.unlink()


def _link(folder: Path, words: Sequence[str], written: Path, library: Path, *more: str) -> None:
    """Make a library of a source, with the emulation's own, which is found again in the same folder or the image."""
    from torch.utils.cpp_extension import library_paths

    shared = prepare.extension_library(folder)
    place = "$ORIGIN" if shared.parent == folder else str(shared.parent)
    # It is needed where nothing is launched, too: it knows the memory of tensors.
    needed = ["-Wl,--no-as-needed", "-lcuh", "-Wl,--as-needed"]
    linked = [f"-L{shared.parent}", *needed, f"-Wl,-rpath,{place}", *(f"-L{path}" for path in library_paths()), *more]
    if shutil.which("ld.gold") is not None:  # reads torch's libraries in a third of the time
        linked.insert(0, "-fuse-ld=gold")
    compile_cpp([*words, *_TOLD, "-shared", str(written), "-o", str(library), *linked])


def compile_cpp(words: Sequence[str], timeout_s: float = 300.0) -> None:
    """Run g++.

    Raises:
        BuildError: it found errors.
    """
    # Written beside its place and moved, so that a runner that is ended leaves no half of a library.
    target = words[words.index("-o") + 1]
    aside = [*words]
    aside[words.index("-o") + 1] = f"{target}.part"
    done = subprocess.run(
        ["g++", *aside], capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise BuildError(errors_of(done.stderr))
    os.replace(f"{target}.part", target)  # noqa: PTH105


def errors_of(printed: str) -> str:
    """The compiler's errors with their lines and carets, without the way through headers."""
    kept: list[str] = []
    for line in printed.splitlines():
        if line.startswith(("In file included", "                 from")) or "in expansion of macro" in line:
            continue
        # A host's compiler proposes what only torch's headers know.
        kept.append(re.sub(r"; did you mean .(?:c10|at|torch|pybind11)::[^?]*\?", "", line))
    text = "\n".join(kept)
    first = next((line for line in kept if "error:" in line), kept[0] if kept else "g++ failed without a word")
    return f"{first}\n{text}"[:_MAX_ERROR]


def sources_of(
    name: str,
    cpp_sources: Any,
    cuda_sources: Any = None,
    functions: Any = None,
) -> Sources:
    """The arguments of `load_inline`, each in one form."""
    if isinstance(functions, str):
        functions = [functions]
    named = dict(functions) if isinstance(functions, Mapping) else {each: each for each in functions or ()}
    return Sources(str(name), _texts(cpp_sources), _texts(cuda_sources), named)


def _texts(given: Any) -> tuple[str, ...]:
    if not given:
        return ()
    return (given,) if isinstance(given, str) else tuple(map(str, given))


def not_emulated(given: Sources, dialect: Dialect = CUDA) -> list[source.Remark]:
    """What the emulation has nothing for, in the order of the lines.

    Raises:
        BuildError: a source cannot be read.
    """
    found: list[source.Remark] = []
    for text in given.cuda:
        try:
            found += source.rewrite(text).not_emulated + dialect.not_emulated(text)
        except source.SourceError as error:
            raise BuildError(f"cuda_sources, {error}") from None
    return found

"""Compiles what of the emulation does not depend on a kernel: functions to libraries, headers to precompiled ones.

Reading headers and compiling the emulation is four fifths of a small kernel's build. The image of platform `cuda` has
all of it ready: this file is run while the image is made. Where there is no image the libraries are compiled when they
are needed, and headers are read.
"""

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARY = Path(__file__).parent
INCLUDE = LIBRARY.parent / "include"
READY = Path("/opt/kernelwright/cuda")
"""Where the image has it."""

# A precompiled header serves only the options that it was made with (GCC manual, 3.22).
PROGRAMS: dict[str, tuple[str, ...]] = {
    "plain": ("-std=c++20", "-w", "-O2"),  # where the address sanitizer cannot run, or takes too long
    "thread": ("-std=c++20", "-w", "-O1", "-g1", "-fsanitize=thread"),
    "address": ("-std=c++20", "-w", "-O1", "-g1", "-fsanitize=address", "-fno-omit-frame-pointer"),
}
"""How programs that make launches again are compiled, by what they check."""
EXTENSION = ("-std=c++20", "-w", "-O1", "-fPIC", "-DTORCH_API_INCLUDE_EXTENSION_H")
"""How extensions of torch are compiled."""
_OF_PROGRAMS = ("engine.cpp", "record.cpp", "replay.cpp")
_OF_EXTENSIONS = ("engine.cpp", "record.cpp", "tensors.cpp")


def torch_folders() -> list[str]:
    """The options by which a compiler finds the headers of torch and Python."""
    from torch.utils.cpp_extension import include_paths

    return [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]


def program_objects(kind: str, folder: Path) -> list[str]:
    """The files to link a program with, compiled in `folder` unless the image has them.

    Raises:
        subprocess.CalledProcessError: they do not compile.
    """
    ready = READY / kind
    return _objects(kind, ready if ready.is_dir() else folder)


def extension_library(folder: Path) -> Path:
    """The library that all extensions of a process share: the image's, or one that is compiled in `folder`.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """
    ready = READY / "extension"
    library = (ready if ready.is_dir() else folder) / "libcuh.so"
    if not library.is_file():
        from torch.utils.cpp_extension import library_paths

        sources = [str(LIBRARY / name) for name in _OF_EXTENSIONS]
        of_torch = [*(f"-L{path}" for path in library_paths()), "-lc10"]
        _compile([*EXTENSION, *torch_folders(), "-shared", *sources, *of_torch], library)
    return library


def prepare(folder: Path) -> None:
    """Fill a folder with the libraries, and with headers precompiled.

    Raises:
        subprocess.CalledProcessError: something does not compile.
    """
    with ThreadPoolExecutor(2) as pool:
        extensions = pool.submit(_prepare_extensions, folder / "extension")
        list(pool.map(lambda kind: prepare_programs(kind, folder / kind), PROGRAMS))
        extensions.result()


def prepare_programs(kind: str, folder: Path) -> list[str]:
    """Fill a folder with what programs of one kind need; the files to link them with.

    Raises:
        subprocess.CalledProcessError: something does not compile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / "replay.h.gch"
    if not header.is_file():
        _compile([*PROGRAMS[kind], "-x", "c++-header", str(INCLUDE / "replay.h")], header)
    return _objects(kind, folder)


def _prepare_extensions(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    small = [*EXTENSION, f"-I{INCLUDE / 'instead'}", *torch_folders()]
    _compile([*small, "-x", "c++-header", str(INCLUDE / "torch_on_host.h")], folder / "torch_on_host.h.gch")
    extension_library(folder)


def _objects(kind: str, folder: Path) -> list[str]:
    objects = []
    for name in _OF_PROGRAMS:
        made = folder / f"{kind}-{name}.o"
        if not made.is_file():
            _compile([*PROGRAMS[kind], "-c", str(LIBRARY / name)], made)
        objects.append(str(made))
    return objects


def _compile(words: Sequence[str], target: Path) -> None:
    """Run g++; its file is there whole or not at all."""
    part = target.with_suffix(f"{target.suffix}.part")
    subprocess.run(["g++", *words, "-o", str(part)], check=True)
    part.replace(target)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))

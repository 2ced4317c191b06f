"""What all parts of the platforms for GPUs agree on: orders, checks, architectures, and where compilers lie."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ORDERS = ("forward", "backward", "random:7")
"""How blocks and threads follow each other when launches are made again."""

SANITIZERS = {"thread": "race_free", "address": "in_bounds"}
"""The tag that a sanitizer's silence earns."""

WATCHES = {"races": "race_free", "bounds": "in_bounds"}
"""The tag that the silence of what watches an interpreted kernel's memory earns."""

NO_KERNEL = "no kernel was launched: the work is done by something else"
"""Why nothing is shown of a candidate that launches none."""

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
"""What kernels for NVIDIA's GPUs are compiled for if nobody asks for others."""

AMD_ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100")
"""What kernels for AMD's GPUs are compiled for if nobody asks for others."""

_ARCHITECTURE = re.compile(r"sm_[1-9]\d{1,2}[af]?|gfx[1-9][0-9a-f]{2,3}")


def is_architecture(name: object) -> bool:
    """Whether a name has the form of those of NVIDIA's architectures or AMD's."""
    return isinstance(name, str) and _ARCHITECTURE.fullmatch(name) is not None


def architectures_for(platform: str, asked: Sequence[str]) -> list[str]:
    """Those of the architectures asked for that are of the platform's maker; its usual ones if there are none."""
    form, usual = ("gfx", AMD_ARCHITECTURES) if platform == "hip" else ("sm_", ARCHITECTURES)
    return [name for name in asked if name.startswith(form)] or list(usual)


_ON = "@"


def part_on_gpu(language: str, uuid: str) -> str:
    """The name of the referee's part that judges a language on a GPU: where there is none, the language is the name."""
    return f"{language}{_ON}{uuid}"


def gpu_of(part: str) -> tuple[str, str]:
    """The language of a part, and the UUID of its GPU; empty: it screens without one."""
    language, _, uuid = part.partition(_ON)
    return language, uuid


LIBRARY = "lib/libnvrtc.so.13"
_TOOLS = Path("/tools/cuda")  # where a container shows the host's


def toolkit(path: Sequence[str] | None = None) -> Path | None:
    """The folder of NVIDIA's libraries and programs, as its wheels lay it out; None where they are not installed.

    Args:
        path: the folders of Python packages; None: this process's.
    """
    places = [_TOOLS, *(Path(entry) / "nvidia" / "cu13" for entry in (sys.path if path is None else path) if entry)]
    return next((place for place in places if (place / LIBRARY).is_file()), None)


TOOL_PLACES = ("usr/local/cuda/bin", "usr/local/cuda/compute-sanitizer", "opt/nvidia/nsight-compute/*")
"""Folders, as patterns below the root, where NVIDIA's installers put programs that are on no search path."""

TRITON_LIBRARY = "_C/libtriton.so"
_SHOWN_TRITON = Path("/tools/triton")


def triton_package(path: Sequence[str] | None = None) -> Path | None:
    """The folder of the Python package `triton`; None where it is not installed.

    Args:
        path: the folders of Python packages; None: this process's.
    """
    places = [_SHOWN_TRITON, *(Path(entry) / "triton" for entry in (sys.path if path is None else path) if entry)]
    return next((place for place in places if (place / TRITON_LIBRARY).is_file()), None)

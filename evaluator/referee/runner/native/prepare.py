"""Run once while an image is made, and by `make setup`: compile `call_loop.cpp` for this Python and its torch.

The module's file is named by a hash of the source and the versions of torch and Python, so that one of others is passed
over.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("call_loop.cpp")


def place() -> Path:
    """Where the module of this source lies, for this Python and its torch."""
    versions = f"{torch.__version__} {sys.implementation.cache_tag}"
    digest = hashlib.sha256(SOURCE.read_bytes() + versions.encode()).hexdigest()
    return Path(sys.prefix) / "share" / "kernelwright" / "native" / f"call_loop-{digest[:16]}.so"


def main() -> None:
    """Compile the module and put it into its place.

    Raises:
        subprocess.CalledProcessError: g++ is missing a header, or refuses the source; it has said so.
    """
    # Runners only ask for the place, and this import takes 0.1 s.
    from torch.utils.cpp_extension import include_paths, library_paths

    target = place()
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(f".{os.getpid()}")
    command = ["g++", "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", str(SOURCE)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    command += [f"-L{path}" for path in library_paths()]
    command += [f"-l{library}" for library in ("torch_python", "torch_cpu", "c10")]
    subprocess.run([*command, "-o", str(made)], check=True)
    made.replace(target)


if __name__ == "__main__":
    main()

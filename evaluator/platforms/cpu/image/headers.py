"""Run once while the image is made: precompile torch's headers, so that load_inline takes half the time.

Of the 16 s that g++ needs for a small extension, 10 go into reading torch's headers. A precompiled header serves only
the options that it was made with, except that -O1, -O2 and -O3 are one to it, and takes 760 MB: hence two of
torch/extension.h, for what candidates use most. One that does not fit is passed over. g++ looks for them in every
folder of its search path before it looks for the header (GCC manual, 3.22), so a folder of CPATH serves; beside the
header, load_inline would delete them.
"""

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

# As torch.utils.cpp_extension has them, but for the extension's name.
_ALWAYS = ("-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20")
PRECOMPILED = (
    ("torch/extension.h", ("-O3",)),
    ("torch/extension.h", ("-O3", "-march=native", "-fopenmp")),
)


def main() -> None:
    """Put each header, with its precompiled forms by number, below the folder named by the argument."""
    folder = Path(sys.argv[1])
    for name, _ in PRECOMPILED:
        (folder / f"{name}.gch").mkdir(parents=True, exist_ok=True)
    # When the header is included again, g++ expects it in this folder, too.
    (folder / "torch/extension.h").symlink_to(Path(torch.__path__[0]) / "include" / "torch" / "extension.h")
    places = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]

    def precompile(number: int) -> None:
        name, options = PRECOMPILED[number]
        form = folder / f"{name}.gch" / str(number)
        command = ["g++", *_ALWAYS, *places, *options, "-w", "-x", "c++-header", str(folder / name), "-o", str(form)]
        subprocess.run(command, check=True)

    with ThreadPoolExecutor(2) as pool:  # each takes 2 GB of memory
        list(pool.map(precompile, range(len(PRECOMPILED))))


if __name__ == "__main__":
    main()

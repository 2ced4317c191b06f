"""Run once while the image is made: precompile torch/extension.h, so that load_inline takes half the time.

Of the 16 s that g++ needs for a small extension, 10 go into reading torch's headers. A precompiled header serves only
the options that it was made with, except that -O1, -O2 and -O3 are one to it, and takes 760 MB: hence two, for what
candidates use most. One that does not fit is passed over. g++ looks for them in every folder of its search path before
it looks for the header (GCC manual, 3.22), so a folder of CPATH serves; beside the header, load_inline would
delete them.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

# As torch.utils.cpp_extension has them, but for the extension's name.
_ALWAYS = ("-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20")
OPTIONS = (("-O3",), ("-O3", "-march=native", "-fopenmp"))


def main() -> None:
    """Put one precompiled header for each set of options below the folder named by the argument."""
    header = Path(sys.argv[1]) / "torch" / "extension.h"
    folder = header.with_name(f"{header.name}.gch")
    folder.mkdir(parents=True)
    # When the header is included again, g++ expects it in this folder, too.
    header.symlink_to(Path(torch.__path__[0]) / "include" / "torch" / "extension.h")
    places = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    running = [
        subprocess.Popen(
            ["g++", *_ALWAYS, *places, *options, "-w", "-x", "c++-header", str(header), "-o", str(folder / str(number))]
        )
        for number, options in enumerate(OPTIONS)
    ]
    for process in running:
        if process.wait() != 0:
            raise SystemExit("headers: g++ failed")


if __name__ == "__main__":
    main()

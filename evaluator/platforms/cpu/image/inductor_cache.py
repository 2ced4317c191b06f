"""Run once while the image is made: keep what TorchInductor's first compilation builds and every later one can use.

Its first compilation in a fresh container takes 16 s on two cores, 13 s of which go into a precompiled header of
torch's C++ API and into trying this processor's vector extensions. Kept in the image, these are links away: 3 s.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import torch


def keep_reusable(cache: Path, into: Path) -> None:
    """Copy the precompiled headers and the vector extension checks of `cache`; kernels and locks stay behind."""
    for path in cache.rglob("*"):
        kept = path.suffix in {".h", ".gch"} or (path.suffix in {".cpp", ".so"} and ".main." not in path.name)
        if path.is_file() and kept:
            target = into / path.relative_to(cache)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def main() -> None:
    """Compile one op in a fresh temporary folder and keep the reusable part under the folder named by the argument."""
    torch.compile(lambda x: torch.softmax(x, -1) * 2)(torch.randn(64, 64))
    [cache] = Path(tempfile.gettempdir()).glob("torchinductor_*")
    keep_reusable(cache, Path(sys.argv[1]))


if __name__ == "__main__":
    main()

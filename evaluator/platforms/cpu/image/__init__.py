"""The image of platform `cpu`: Debian 12, python3 with headers, g++, ninja, torch, numpy, einops."""

from pathlib import Path

from sandbox.image.recipe import ImageRecipe

_NATIVE = Path(__file__).parents[3] / "referee" / "runner" / "native"
RECIPE = ImageRecipe(
    "cpu",
    Path(__file__).parent,
    files=("requirements.txt", "baselines.txt", "install.sh", "start.sh", "inductor_cache.py", "headers.py"),
    variables=("CPATH", "LD_PRELOAD", "MALLOC_CONF"),
    folders=(_NATIVE,),
)

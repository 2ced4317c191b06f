"""The image of platforms `riscv` and `arm64`: Debian 12, python3, torch, numpy, clang 19, its linker, qemu-user."""

from pathlib import Path

from sandbox.image.recipe import ImageRecipe

RECIPE = ImageRecipe("riscv", Path(__file__).parent, files=("requirements.txt", "install.sh", "start.sh"))

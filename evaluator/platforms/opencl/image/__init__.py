"""The image of platform `opencl`: that of platform `cpu`, with PoCL and pyopencl."""

from pathlib import Path

from evaluator.platforms.cpu.image import RECIPE as CPU_RECIPE
from sandbox.image.recipe import ImageRecipe

RECIPE = ImageRecipe(
    "opencl",
    Path(__file__).parent,
    files=("requirements.txt", "install.sh"),
    variables=CPU_RECIPE.variables,
    base=CPU_RECIPE,
)

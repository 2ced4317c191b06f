"""The image of platform `cuda`: that of platform `cpu`, with the emulation's libraries and headers compiled."""

from pathlib import Path

from evaluator.platforms.cpu.image import RECIPE as CPU_RECIPE
from sandbox.image.recipe import ImageRecipe

_EMULATION = Path(__file__).parents[3] / "referee" / "runner" / "platforms" / "cuda"
RECIPE = ImageRecipe(
    "cuda",
    Path(__file__).parent,
    files=("requirements.txt", "install.sh"),
    variables=CPU_RECIPE.variables,
    base=CPU_RECIPE,
    folders=(_EMULATION / "include", _EMULATION / "library"),
)

"""The image of platform `hip`: that of platform `cuda`, whose emulation runs HIP, too, with clang 19."""

from pathlib import Path

from evaluator.platforms.cuda.image import RECIPE as CUDA_RECIPE
from sandbox.image.recipe import ImageRecipe

RECIPE = ImageRecipe(
    "hip",
    Path(__file__).parent,
    files=("requirements.txt", "install.sh"),
    variables=CUDA_RECIPE.variables,
    base=CUDA_RECIPE,
)

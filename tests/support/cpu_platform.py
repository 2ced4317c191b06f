"""Platform `cpu`, for tests that need one that works: its prompts and its image."""

from evaluator.platforms import load_platform
from service.jobs.spec import prompts_of

PROMPTS = prompts_of("cpu")
IMAGE = load_platform("cpu").image()

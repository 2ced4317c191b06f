"""The prompts of platform `cpu`, for jobs in tests."""

from service.jobs.spec import prompts_of

PROMPTS = prompts_of("cpu")

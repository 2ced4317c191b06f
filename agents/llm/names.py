"""Whose model a name by LiteLLM's scheme stands for: `provider/model`, or a bare name."""

BUILTIN = "builtin"  # provider of the built-in model, `builtin/compiler`


def provider_of(model: str) -> str:
    """The provider of a model; a bare name is an OpenAI-compatible server's."""
    return model.partition("/")[0] if "/" in model else "openai"


def is_builtin(model: str) -> bool:
    """Whether the built-in provider answers for this model."""
    return provider_of(model) == BUILTIN


def only_builtin(model: str | None, judge_model: str | None) -> bool:
    """Whether a job's models are built in: it costs nothing, and nobody else's code comes of it.

    Without a Judge of its own the Coder's model judges; a job without a model is none of these.
    """
    return model is not None and all(is_builtin(name) for name in (model, judge_model or model))

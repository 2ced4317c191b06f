"""The ways in which a capture ends early, or a part of a model is left as it is."""


class CaptureError(Exception):
    """The model could not be captured; `stage` is load, inputs, state or call."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class Refused(Exception):
    """A module could not be exported, or its graph has no description. The text is a short reason."""


def reason_of(error: BaseException) -> str:
    """The first sentence of an exporter's error, and what it means where the error is a frequent one."""
    if isinstance(error, Refused):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    sentence = lines[0].split(". ")[0].strip().rstrip(".")[:300] or type(error).__name__
    if type(error).__name__ == "GuardOnDataDependentSymNode" or "data-dependent" in sentence:
        return f"its control flow or its sizes depend on the values of tensors: {sentence}"
    return f"{type(error).__name__}: {sentence}"

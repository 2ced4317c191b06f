"""The ways in which a capture ends early, or a part of a model is left as it is."""

import traceback

FILE = "model.py"
"""What the model's file is called in tracebacks."""


class CaptureError(Exception):
    """The model could not be captured; `stage` is load, inputs, state or call."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class Refused(Exception):
    """A module could not be exported, or its graph has no description. The text is a short reason."""


def reason_of(error: BaseException) -> str:
    """The first sentence of an exporter's error, or what it means where it is a frequent one, and the line of it."""
    if isinstance(error, Refused):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    sentence = lines[0].split(". ")[0].strip().rstrip(".")[:300] or type(error).__name__
    if type(error).__name__ == "GuardOnDataDependentSymNode" or "data-dependent" in sentence:
        cause = "its control flow or its sizes depend on the values of tensors"
        where = line_of(error) or f": {sentence}"
        return f"{cause}{where}; what does not depend on them can be captured as a submodule"
    return f"{type(error).__name__}: {sentence}{line_of(error)}"


def line_of(error: BaseException) -> str:
    """The last line of the model's file that an error went through, in words; empty if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    if not frames:
        return ""
    code = " ".join((frames[-1].line or "").split())[:120]
    return f", at line {frames[-1].lineno} of the file: {code}"

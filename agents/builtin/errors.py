"""Errors of the built-in model."""


class BuiltinError(Exception):
    """Base of the built-in model's errors. The text is one line."""


class CodegenFailed(BuiltinError):
    """TorchInductor generated no kernels for the op. `stage` is load, inputs, export, lower, codegen or sandbox."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage


class NotTranslatable(BuiltinError):
    """Generated code has a form that cannot be turned into a self-contained C++ candidate; the text names it."""


class GenerationCancelled(Exception):
    """The job was cancelled while kernels were generated, so nothing is known about the op.

    Not a BuiltinError: those say something about the op and become replies, which a job records and replays.
    """

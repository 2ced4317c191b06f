"""What can go wrong inside the built-in model."""


class BuiltinError(Exception):
    """Base of the built-in model's errors; the text is one clear line."""


class CodegenFailed(BuiltinError):
    """TorchInductor gave no kernels for the op: `stage` is load, inputs, export, lower, codegen or sandbox."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage


class NotTranslatable(BuiltinError):
    """Generated code has a form that a self-contained C++ candidate cannot be made of; the text names it."""

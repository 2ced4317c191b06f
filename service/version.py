"""Which version of Kernelwright this is."""

from importlib.metadata import PackageNotFoundError, version


def program_version() -> str:
    """The version that is installed."""
    try:
        return version("kernelwright")
    except PackageNotFoundError:
        return "of a source tree that is not installed"

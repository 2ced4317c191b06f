"""What runners of platform `hip` need beside what the host's own platform imports."""

from pathlib import Path

from ..cuda.imports import CudaImports


class HipImports:
    """See `base.PlatformImports`. As on platform `cuda`."""

    def __init__(self) -> None:
        self._cuda = CudaImports()

    def before_torch(self) -> None:
        """As on platform `cuda`."""
        self._cuda.before_torch()

    def prepare_compiler_folder(self, folder: Path) -> None:
        """As on platform `cuda`."""
        self._cuda.prepare_compiler_folder(folder)

    def look_up_compiler(self) -> None:
        """As on platform `cuda`."""
        self._cuda.look_up_compiler()

    def after_torch(self) -> None:
        """As on platform `cuda`, and what compiles for AMD's GPUs."""
        self._cuda.after_torch()
        from . import platform

        del platform

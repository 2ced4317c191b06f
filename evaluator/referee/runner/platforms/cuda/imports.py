"""What runners of platform `cuda` need beside what the host's own platform imports."""

from pathlib import Path

from ..cpu.imports import CpuImports


class CudaImports:
    """See `base.PlatformImports`. The reference runs on the host, so torch is set up as there."""

    def __init__(self) -> None:
        self._host = CpuImports()

    def before_torch(self) -> None:
        """As on the host's own platform."""
        self._host.before_torch()

    def prepare_compiler_folder(self, folder: Path) -> None:
        """As on the host's own platform."""
        self._host.prepare_compiler_folder(folder)

    def look_up_compiler(self) -> None:
        """As on the host's own platform."""
        self._host.look_up_compiler()

    def after_torch(self) -> None:
        """What builds extensions."""
        import torch.utils.cpp_extension

        from ..gpu import seeming
        from . import building, checking

        del torch, building, checking, seeming

"""What runners of platform `triton` need beside what the host's own platform imports."""

import sys
from pathlib import Path

from ....protocol.gpu_checks import triton_package
from ..cpu.imports import CpuImports


class TritonImports:
    """See `base.PlatformImports`. The reference runs on the host, so torch is set up as there."""

    def __init__(self) -> None:
        self._host = CpuImports()

    def before_torch(self) -> None:
        """As on the host's own platform; Triton is found where a container is shown it."""
        self._host.before_torch()
        place = triton_package()
        if place is not None and str(place.parent) not in sys.path:
            sys.path.append(str(place.parent))

    def prepare_compiler_folder(self, folder: Path) -> None:
        """As on the host's own platform."""
        self._host.prepare_compiler_folder(folder)

    def look_up_compiler(self) -> None:
        """As on the host's own platform."""
        self._host.look_up_compiler()

    def after_torch(self) -> None:
        """Triton, as its compiler needs it; what interprets changes it in the process that does so."""
        if triton_package() is not None:
            if sys.modules.get("triton", self) is None:
                del sys.modules["triton"]
            from . import checking, recording

            del checking, recording

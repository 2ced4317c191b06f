"""What runners on a GPU need before anything foreign is loaded. No context of CUDA is made here: a fork breaks it."""

import os
import sys
from pathlib import Path

from ....protocol.gpu_checks import triton_package
from ..cpu.imports import CpuImports


class OnGpuImports:
    """See `base.PlatformImports`."""

    def __init__(self, uuid: str) -> None:
        self._host = CpuImports()
        self._uuid = uuid

    def before_torch(self) -> None:
        """This GPU is the only one that referee and runners see. Triton is found where a container is shown it."""
        self._host.before_torch()
        os.environ["CUDA_VISIBLE_DEVICES"] = self._uuid
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU makes no context
        place = triton_package()
        if place is not None and str(place.parent) not in sys.path:
            sys.path.append(str(place.parent))
        if sys.modules.get("triton", self) is None:
            del sys.modules["triton"]  # torch.compile writes Triton for GPUs

    def after_torch(self) -> None:
        """Convolutions of float32 are computed in float32, as matrix products are by themselves; not in TF32."""
        import torch

        # The builder of extensions asks NVML whether there is a GPU when it is imported, and NVML keeps files open,
        # which a fork closes behind its back. So it sees none.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import torch.utils.cpp_extension

        os.environ["CUDA_VISIBLE_DEVICES"] = self._uuid
        torch.backends.cudnn.allow_tf32 = False

    def prepare_compiler_folder(self, folder: Path) -> None:
        """As on the host's own platform."""
        self._host.prepare_compiler_folder(folder)

    def look_up_compiler(self) -> None:
        """Nothing: what Inductor asks about a GPU needs a context."""

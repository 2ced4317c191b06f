"""Which of the kernels that ran in a call are the candidate's own, by their names as its process tells them."""

import math
import re
from collections.abc import Sequence

from ...protocol import untrusted

SHOWN = 12
_LIBRARY = re.compile(
    r"at::|at_cuda|cub::|thrust::|c10::"  # torch and what it is built on
    r"|cublas|cutlass|cudnn|cufft|cusparse|cusolver|xmma|gemmk1|gemv2|splitK|nvjet"  # NVIDIA's libraries
    r"|(?:ampere|turing|volta|sm\d+)_\w*(?:gemm|sgemm|fprop|dgrad|wgrad|s\d+)"
    r"|Memcpy|Memset|memcpy|memset|flash_fwd|fmha|pytorch_flash"
)


def is_library(name: str) -> bool:
    """Whether a kernel of this name is one of torch's or of NVIDIA's libraries, or no kernel but a copy."""
    return _LIBRARY.search(name) is not None


def read_kernels(told: object) -> list[tuple[str, float]]:
    """Names and microseconds, as a runner tells them, the longest first; nothing of it is believed to be true.

    Raises:
        ValueError: it has another form.
    """
    if not isinstance(told, list):
        raise ValueError("no list of kernels")
    found: dict[str, float] = {}
    for each in told[:10_000]:
        name, seconds = each
        value = untrusted.number(seconds)
        if not math.isfinite(value) or value < 0:
            raise ValueError("no time of a kernel")
        key = untrusted.text(str(name), 120)
        found[key] = found.get(key, 0.0) + value
    return sorted(found.items(), key=lambda each: -each[1])


def own_share(kernels: Sequence[tuple[str, float]]) -> float | None:
    """The share of the time in kernels that are no library's; None where no kernel was told."""
    total = math.fsum(seconds for _, seconds in kernels)
    if total <= 0:
        return None
    return math.fsum(seconds for name, seconds in kernels if not is_library(name)) / total


def shares(kernels: Sequence[tuple[str, float]]) -> list[list[object]]:
    """The longest ones with their shares of the time, for the profile."""
    total = math.fsum(seconds for _, seconds in kernels)
    return [[name, round(seconds / total, 4)] for name, seconds in kernels[:SHOWN]] if total > 0 else []

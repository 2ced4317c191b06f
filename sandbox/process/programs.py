"""What code needs of the host where it runs in the process sandbox."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostProgram:
    """A program that candidates of a platform call.

    Attributes:
        name: how it is called.
        purpose: what it is needed for, as a clause: `builds kernels in the process sandbox`.
        remedy: how to get it.
        required: whether candidates fail without it.
    """

    name: str
    purpose: str
    remedy: str
    required: bool = False

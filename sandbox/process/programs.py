"""Programs of the host that candidates need in the process sandbox."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostProgram:
    """A program that candidates of a platform call.

    Attributes:
        name: the name of the program.
        purpose: what it is needed for, as a clause: `builds kernels in the process sandbox`.
        remedy: how to install it.
        required: whether candidates fail without it.
    """

    name: str
    purpose: str
    remedy: str
    required: bool = False

"""What candidates need of the host: programs in the process sandbox, Python packages that any sandbox is shown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostProgram:
    """A program that candidates of a platform call.

    Attributes:
        name: the name of the program.
        purpose: what it is needed for, as a clause: `builds kernels in the process sandbox`.
        remedy: how to install it.
        required: whether candidates fail without it.
        places: folders beside the usual ones where it may lie, as patterns below the root.
    """

    name: str
    purpose: str
    remedy: str
    required: bool = False
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostPackage:
    """A package of the host's Python that sandboxes are shown, whichever it is.

    Attributes:
        name: what it is, for people.
        purpose: what it is needed for, as a clause: `compiles kernels for GPUs`.
        remedy: how to install it.
        present: whether it is installed.
        required: whether candidates fail without it.
    """

    name: str
    purpose: str
    remedy: str
    present: bool
    required: bool = False

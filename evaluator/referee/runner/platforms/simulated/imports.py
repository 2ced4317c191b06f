"""What runners of platform `simulated` need beside what the host's own platform imports."""

from ..cpu.imports import CpuImports


class SimulatedImports:
    """See `base.PlatformImports`. The reference's operators run on the host, so torch is set up as there."""

    def __init__(self) -> None:
        self._host = CpuImports()

    def before_torch(self) -> None:
        """As on the host's own platform."""
        self._host.before_torch()

    def look_up_compiler(self) -> None:
        """As on the host's own platform."""
        self._host.look_up_compiler()

    def after_torch(self) -> None:
        """Have torch import what tensors without elements need (SymPy, for a second), and its decompositions."""
        import torch

        from . import operator_cycles

        with operator_cycles.OperatorCycles(operator_cycles.OperatorCosts()):
            torch.nn.functional.gelu(torch.ones(1))

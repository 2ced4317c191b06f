"""What runners of platforms under qemu-user need beside what the host's own platform imports."""

from pathlib import Path

from ..cpu.imports import CpuImports
from .instruction_table import InstructionTable


class EmulatedImports:
    """See `base.PlatformImports`. The reference's operators run on the host, so torch is set up as there."""

    def __init__(self, table: InstructionTable) -> None:
        self._host = CpuImports()
        self._table = table

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
        """Have torch import what tensors without elements need (SymPy, for a second), and its decompositions."""
        import torch

        from .. import operator_counts

        with operator_counts.OperatorCounter(operator_counts.OperatorCosts(self._table)):
            torch.nn.functional.gelu(torch.ones(1))

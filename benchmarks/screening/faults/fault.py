"""What a planted fault is: a small change of a candidate that is right."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """A change of the candidate for an op.

    Attributes:
        platform: whose candidate it is.
        op: a starter op.
        what: the fault, as whoever has made it would say it.
        changes: texts of the candidate, each of which is there once, and what stands in their places.
    """

    platform: str
    op: str
    what: str
    changes: tuple[tuple[str, str], ...]

    def source(self, folder: Path) -> str:
        """The candidate with the fault.

        Args:
            folder: where the candidates of all platforms lie.

        Raises:
            ValueError: a text is not there once.
        """
        text = (folder / self.platform / f"{self.op}.py").read_text()
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.platform}/{self.op} has {text.count(old)} times: {old}")
            text = text.replace(old, new)
        return text

"""Building candidates ahead, as the service hands it in; agents never import the evaluator."""

from typing import Protocol


class Builds(Protocol):
    """Builds candidates that are written side by side, before their evaluation is due."""

    def start(self, source: str) -> None:
        """Begin to build one, if that is worth it; returns at once. Threads may call it."""
        ...

    def finish(self, limit_s: float | None) -> None:
        """Wait for those that are under way, so long at most."""
        ...


class NoBuilds:
    """Leaves each build to its evaluation."""

    def start(self, source: str) -> None:
        """Nothing."""

    def finish(self, limit_s: float | None) -> None:
        """Nothing."""


NO_BUILDS = NoBuilds()

"""The seam between the evaluator and a platform: what differs between languages and kinds of device."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Device:
    """One platform on one host, as provenance and prompts name it."""

    platform: str
    name: str  # "AMD EPYC 9R14, 2 cores"
    facts: dict[str, str]  # vector extensions, cache sizes, memory

    def describe(self) -> str:
        """A few lines for a prompt."""
        return "\n".join((self.name, *(f"{key}: {value}" for key, value in self.facts.items())))


class Platform(Protocol):
    """One file in this folder each."""

    @property
    def name(self) -> str:
        """How commands and the store name it: `cpu`."""
        ...

    @property
    def language(self) -> str:
        """What candidates are written in, for prompts."""
        ...

    def device(self) -> Device:
        """The device of this host.

        Raises:
            OSError: the device cannot be probed.
        """
        ...

    def builds_slowly(self, candidate_source: str) -> bool:
        """Whether building this candidate may well take many seconds, so that it is worth doing ahead. A guess."""
        ...

    def profile_text(self, profile: dict[str, object]) -> str:
        """An evaluation's profile, with its `detail` if present: at most 60 lines of 100 columns for a Judge."""
        ...

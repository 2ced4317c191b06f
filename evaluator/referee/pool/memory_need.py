"""How much memory an evaluation takes, by what one call of the task takes and gives.

The factors are counted, not fitted: what lives at the worst moment. For inputs that is the start of a process set:
three runners and the reference's have a buffer each, and the referee holds those of untimed calls and of a spot check.
For all else it is a spot check that is judged between two rounds: eager and the candidate hold what their last calls
have made, the referee the candidate's and the reference's outputs, and the reference's runner runs in float64.
`benchmarks/memory_need.py` measures what an evaluation takes.
"""

from dataclasses import dataclass

BASE_BYTES = 960 << 20
"""The referee, its fork servers and its runners without tensors. Of a small sandbox they are taken to leave half."""

INPUTS, OUTPUTS, STATE, TEMPORARIES = 6, 6, 8, 4
"""How often each lives at once where memory is short."""

CHAMPION = (0, 1, 0, 1)
"""The same besides, where a champion stands in for the compile baseline, which gives its memory back after a turn."""

EXTRA = (1, 2, 3, 1)
"""The same factors for each baseline beside the usual ones, whose runner stands still at that moment."""

EXTRA_BASE_BYTES = 320 << 20
"""Of such a runner without tensors."""

GENEROUS = 24
"""Where so many times of what a call takes and gives fit, copies are kept that save time."""


@dataclass(frozen=True)
class Need:
    """The bytes of a call's inputs, of its outputs, of the model's state, and of what it makes besides meanwhile.

    `extra_baselines`: how many there are beside the usual ones. `champion`: whether there is another candidate.
    """

    input_bytes: int
    output_bytes: int = 0
    state_bytes: int = 0
    temporary_bytes: int = 0
    extra_baselines: int = 0
    champion: bool = False

    @property
    def touched_bytes(self) -> int:
        """Inputs, outputs and state together."""
        return self.input_bytes + self.output_bytes + self.state_bytes

    @property
    def nbytes(self) -> int:
        """What an evaluation takes at the least."""
        return BASE_BYTES + self._beside_base_bytes

    @property
    def _beside_base_bytes(self) -> int:
        parts = (self.input_bytes, self.output_bytes, self.state_bytes, self.temporary_bytes)
        usual, champion, extra = (
            sum(factor * part for factor, part in zip(factors, parts, strict=True))
            for factors in ((INPUTS, OUTPUTS, STATE, TEMPORARIES), CHAMPION, EXTRA)
        )
        return usual + self.champion * champion + self.extra_baselines * (extra + EXTRA_BASE_BYTES)

    def fits(self, memory_bytes: int) -> bool:
        """Whether an evaluation has room in a sandbox of so much memory."""
        return self._beside_base_bytes <= _for_tensors(memory_bytes)

    def is_generous(self, memory_bytes: int) -> bool:
        """Whether so much memory has room for copies that save time."""
        extra_bytes = self.extra_baselines * EXTRA_BASE_BYTES
        return GENEROUS * (self.touched_bytes + self.temporary_bytes) + extra_bytes <= _for_tensors(memory_bytes)

    def says(self, memory_bytes: int) -> str:
        """What is needed and what there is, for people, and what to do."""
        parts = {
            "inputs": self.input_bytes,
            "outputs": self.output_bytes,
            "parameters": self.state_bytes,
            "temporary tensors": self.temporary_bytes,
        }
        of = ", ".join(f"{name} {size >> 20:,} MiB" for name, size in parts.items() if size >> 20)
        wanted_mb = -(-self.nbytes // (100 << 20)) * 100
        remedy = f"give it smaller shapes or the sandbox more memory (KERNELWRIGHT_MEMORY_MB={wanted_mb})"
        need = f"needs about {_gb(self.nbytes)} of memory ({of or 'no tensors to speak of'})"
        return f"{need}, the sandbox has {_gb(memory_bytes)}: {remedy}"


def _for_tensors(memory_bytes: int) -> int:
    return max(memory_bytes - BASE_BYTES, memory_bytes // 2)


def _gb(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"

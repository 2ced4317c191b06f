"""Seeds that a candidate cannot predict, and that can be computed again once the secret is known.

A candidate is told the seed under which its model is built and, in each call, the seed of torch's generator. It must
not learn another seed from these: otherwise it could make the inputs of later calls and have their results ready. So
seeds come from a keyed hash (BLAKE2b, RFC 7693) and not from a generator with a state that can be run forwards.
"""

import hashlib
import secrets
from dataclasses import dataclass, field


@dataclass
class Seeds:
    """All seeds of one evaluation, derived from one secret of 128 bits."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _count: int = 0

    def named(self, purpose: str) -> int:
        """The seed for a purpose that occurs once, 62 bits."""
        digest = hashlib.blake2b(purpose.encode(), key=self.secret, digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def next(self) -> tuple[int, int]:
        """The seeds of the next set of inputs: one for the task's generator, and one for the calls on the set."""
        self._count += 1
        return self.named(f"inputs {self._count}"), self.named(f"call {self._count}")

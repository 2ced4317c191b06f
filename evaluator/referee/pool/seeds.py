"""Seeds that nobody can foresee, and that repeat once the secret is known.

A candidate is told the seed under which its model is built and, in each call, that of torch's generator. From none
of them may it learn another: it could otherwise make the inputs of calls to come and have their results ready. Hence a
keyed hash (BLAKE2b, RFC 7693) instead of a generator with a state that can be run forwards.
"""

import hashlib
import secrets
from dataclasses import dataclass, field


@dataclass
class Seeds:
    """All seeds of one trial, out of one secret of 128 bits."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _count: int = 0

    def named(self, purpose: str) -> int:
        """The seed for something that happens once, 62 bits."""
        digest = hashlib.blake2b(purpose.encode(), key=self.secret, digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 2

    def next(self) -> tuple[int, int]:
        """The seeds of the next set of inputs: for the task's generator, and for the calls made on it."""
        self._count += 1
        return self.named(f"inputs {self._count}"), self.named(f"call {self._count}")

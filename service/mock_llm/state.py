"""The state that the server's threads share: the state of the script, the requests so far, and the counts."""

import hmac
import select
import socket
import threading
from typing import Any

from service.mock_llm.protocol import Answer
from service.mock_llm.script import Entry, EntrySelector, Script, request_digest

DEFAULT_MODEL = "scripted"
_POLL_S = 0.05


class ServerState:
    """Records requests and selects their entries, for several threads at once. It keeps requests, but no keys."""

    def __init__(self, script: Script, model: str | None) -> None:
        self._script = script
        self._model = model
        self._selector = EntrySelector(script)
        self._requests: list[dict[str, Any]] = []
        self._replies = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._faults: dict[str, int] = {}
        self._digests: dict[str, dict[str, int]] = {}
        self._active = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests so far, in the order in which they came."""
        with self._changed:
            return list(self._requests)

    def stats(self) -> dict[str, Any]:
        """The counts. `replies` and the tokens count only replies that were sent whole."""
        with self._changed:
            return {
                "requests": len(self._requests),
                "replies": self._replies,
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self._completion_tokens,
                "faults": dict(self._faults),
                "digests": {digest: dict(counts) for digest, counts in self._digests.items()},
            }

    def models(self) -> list[str]:
        """The names of the models to list."""
        return [self._model or DEFAULT_MODEL]

    def has_model(self, model: str) -> bool:
        """Whether the server answers for this model."""
        return self._model is None or model == self._model

    def accepts(self, authorization: str | None) -> bool:
        """Whether a request with this Authorization header is answered."""
        if self._script.key is None:
            return True
        return hmac.compare_digest((authorization or "").encode(), f"Bearer {self._script.key}".encode())

    def select_entry(self, body: dict[str, Any]) -> Entry | None:
        """Record a request and select its entry."""
        messages = body["messages"]
        with self._changed:
            self._requests.append(body)
            self._counts_of(request_digest(messages))["requests"] += 1
            return self._selector.select(messages)

    def count_reply(self, answer: Answer, times: int = 1) -> None:
        """Count a reply that is about to be sent. `times` of -1 takes the count back."""
        usage = answer.usage or {}
        with self._changed:
            self._replies += times
            self._counts_of(answer.digest)["replies"] += times
            self._prompt_tokens += times * usage.get("prompt_tokens", 0)
            self._completion_tokens += times * usage.get("completion_tokens", 0)

    def count_fault(self, name: str) -> None:
        """Count a fault that is about to be sent."""
        with self._changed:
            self._faults[name] = self._faults.get(name, 0) + 1

    def count_active(self, step: int) -> None:
        """Change the number of answers under way by `step`, 1 or -1."""
        with self._changed:
            self._active += step
            self._changed.notify_all()

    def pause(self, seconds: float, connection: socket.socket) -> None:
        """Wait for `seconds`, or until the server closes or the client has gone."""
        waited = 0.0
        while waited < seconds and not self._closing.wait(_POLL_S):
            waited += _POLL_S
            try:
                if select.select([connection], [], [], 0)[0] and not connection.recv(1, socket.MSG_PEEK):
                    return
            except OSError:
                return

    def close(self, wait_s: float) -> None:
        """End all pauses, and wait up to `wait_s` for the answers under way."""
        self._closing.set()
        with self._changed:
            self._changed.wait_for(lambda: self._active == 0, wait_s)

    def _counts_of(self, digest: str) -> dict[str, int]:
        return self._digests.setdefault(digest, {"requests": 0, "replies": 0})

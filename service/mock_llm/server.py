"""The mock LLM server: its start, its address and its end."""

import http.server
import socketserver
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from service.mock_llm.handler import Handler
from service.mock_llm.script import Script, builtin_script, load_script, parse_script
from service.mock_llm.state import ServerState

_CLOSE_S = 2.0


class LlmServer:
    """A running server, as a context manager. `url` is its address in the form that `--api-base` takes."""

    def __init__(self, state: ServerState, host: str, port: int) -> None:
        self._state = state
        self._http = _Http((host, port), Handler)
        self._http.state = state
        self.port: int = self._http.server_address[1]
        self.url = f"http://{host}:{self.port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="llm-server", daemon=True)
        self._thread.start()

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests so far, in the order in which they came."""
        return self._state.requests()

    def stats(self) -> dict[str, Any]:
        """The counts of GET /stats: requests, whole replies, their tokens, faults, and the first two by digest."""
        return self._state.stats()

    def close(self) -> None:
        """Stop the server. Answers that a script keeps waiting are ended."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
            self._state.close(_CLOSE_S)
            self._http.server_close()

    def __enter__(self) -> "LlmServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def start_llm_server(
    script: Script | Mapping[str, Any] | Path | None = None,
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    model: str | None = None,
) -> LlmServer:
    """Start a server in a thread.

    Args:
        script: a script file, the content of one, or None for the built-in script, which answers for any op.
        port: the port; 0 takes a free one, which is part of `LlmServer.url`.
        host: the address to listen at.
        model: the only model to answer for; None for any.

    Raises:
        BadRequest: the script cannot be used.
        OSError: the address cannot be listened at.
    """
    if isinstance(script, Path):
        read = load_script(script)
    else:
        read = parse_script(builtin_script() if script is None else script, Path.cwd(), "script")
    return LlmServer(ServerState(read, model), host, port)


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    state: ServerState

    def server_bind(self) -> None:
        """Bind the socket without looking up the host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # a TCP address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, because a client that has gone is no error of the server."""

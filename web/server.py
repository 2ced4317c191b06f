"""The server process: where it listens, how it ends, and the worker beside it."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from db.store import Store
from service.errors import BadRequest, Unavailable
from service.settings import Settings
from service.submissions.access import any_token_opens
from web.app import create_app
from web.dependencies import Dependencies
from web.security.timeouts import TimeoutProtocol
from web.worker_process import worker_beside

END_S = 10
"""How long requests under way may take once the server is to end."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerOptions:
    """Where to listen and whom to believe. `login` asks for tokens on a loopback address, too."""

    host: str
    port: int
    login: bool = False
    proxies: str = "127.0.0.1,::1"
    worker: bool = True
    log_format: str = "text"


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals are ours to handle."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def run_server(settings: Settings, store: Store, listening: ServerOptions, *, on_ready: Callable[[str], None]) -> int:
    """Serve until a signal says to stop; streams end, then requests under way, then the worker.

    Raises:
        BadRequest: tokens are required and there is none.
        Unavailable: the address cannot be listened on.
    """
    login = listening.login or not is_loopback(listening.host)
    if login and not any_token_opens(store):
        raise BadRequest(
            f"--host {listening.host}: needs a token to log in with, and there is none;"
            " make one: kernelwright tokens create NAME --role operator"
        )
    stopping = threading.Event()
    sock = _listen(listening.host, listening.port)
    key = session_key(settings.data_dir)
    app = create_app(Dependencies(settings, store, login=login, session_key=key, stopping=stopping.is_set))
    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=True,
        forwarded_allow_ips=listening.proxies,
        timeout_graceful_shutdown=END_S,
        timeout_keep_alive=15,
        limit_concurrency=2000,
        h11_max_incomplete_event_size=64 * 1024,
    )
    url = _url(listening.host, sock.getsockname()[1])
    server = _Server(config, lambda: on_ready(url))

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.force_exit = server.should_exit  # the second signal waits for nothing
        server.should_exit = True
        stopping.set()

    with _handling_signals(stop), contextlib.ExitStack() as beside:
        if listening.worker:
            beside.enter_context(worker_beside(settings, log_format=listening.log_format))
        try:
            asyncio.run(server.serve(sockets=[sock]))
        finally:
            sock.close()
        _log.info("server ends")
    return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def session_key(folder: Path) -> bytes:
    """The key that signs sessions, made on first use, for its owner alone to read.

    Raises:
        Unavailable: it cannot be read or written.
    """
    path = folder / "session.key"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            partial = folder / f".session.key.{os.getpid()}"
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                os.link(partial, path)  # whoever was first has made it whole
            finally:
                partial.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}; set KERNELWRIGHT_DATA_DIR to a folder you can write") from error
    if len(key) < 32:
        raise Unavailable(f"{path}: holds no key; remove it, and everyone logs in again")
    return key


def _listen(host: str, port: int) -> socket.socket:
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    sock = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
    except OSError as error:
        if sock is not None:
            sock.close()
        said = (error.strerror or str(error)).lower()
        raise Unavailable(f"{_url(host, port)}: {said}; choose another with --port or --host") from error
    return sock


def _url(host: str, port: int) -> str:
    return f"http://[{host.strip('[]')}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _handling_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

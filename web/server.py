"""The server process: its socket, its shutdown, and the worker that runs beside it."""

import asyncio
import contextlib
import gc
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
from web.worker_process import supervised_worker

SHUTDOWN_TIMEOUT_S = 10
"""How long open requests may take after the server was told to stop."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerOptions:
    """How the server runs.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0 for any free one.
        login: Require tokens on a loopback address, too. On any other address they are always required.
        proxies: Addresses of proxies, separated by commas, whose X-Forwarded headers are trusted.
        worker: Run a worker beside the server.
        log_format: The format of the worker's log, `text` or `json`.
    """

    host: str
    port: int
    login: bool = False
    proxies: str = "127.0.0.1,::1"
    worker: bool = True
    log_format: str = "text"


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, which reports when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen and call `on_ready`."""
        await super().startup(sockets)
        if self.started:
            keep_from_collections()
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers; `run_server` has its own."""
        yield


def keep_from_collections() -> None:
    """Have collections of garbage leave out what is loaded by now, which stays as long as the process.

    A full collection looks through all of it. It took 130 ms, in about every fourth request for a front page
    (benchmarks/overview.py), and nothing is answered meanwhile.
    """
    gc.collect()
    gc.freeze()


def run_server(settings: Settings, store: Store, options: ServerOptions, *, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGINT or SIGTERM. Then event streams end first, then open requests, then the worker.

    Args:
        settings: The server's settings.
        store: The opened store.
        options: Where to listen, and what to run.
        on_ready: Called with the server's URL once it listens.

    Returns:
        The exit status.

    Raises:
        BadRequest: Tokens are required and there is none.
        Unavailable: The address cannot be listened on.
    """
    login = options.login or not is_loopback(options.host)
    if login and not any_token_opens(store):
        raise BadRequest(
            f"--host {options.host}: needs a token to log in with, and there is none;"
            " make one: kernelwright tokens create NAME --role operator"
        )
    stopping = threading.Event()
    sock = _listen(options.host, options.port)
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
        forwarded_allow_ips=options.proxies,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        timeout_keep_alive=15,
        limit_concurrency=2000,
        h11_max_incomplete_event_size=64 * 1024,
    )
    url = _url(options.host, sock.getsockname()[1])
    server = _Server(config, lambda: on_ready(url))

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.force_exit = server.should_exit  # a second signal stops the server at once
        server.should_exit = True
        stopping.set()

    with _handling_signals(stop), contextlib.ExitStack() as stack:
        if options.worker:
            stack.enter_context(supervised_worker(settings, log_format=options.log_format))
        try:
            asyncio.run(server.serve(sockets=[sock]))
        finally:
            sock.close()
        _log.info("server ends")
    return 0


def is_loopback(host: str) -> bool:
    """Whether the address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def session_key(folder: Path) -> bytes:
    """The key that signs sessions. It is created on first use, readable by its owner only.

    Raises:
        Unavailable: The key file cannot be read or written, or is damaged.
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
                os.link(partial, path)  # fails if another process was faster; its file is complete, too
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

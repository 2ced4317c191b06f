"""One worker beside the server: a process of its own, started again when it dies."""

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from service.settings import Settings

END_S = 20.0
"""How long a worker may take to give back what it has begun."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
HEALTHY_S = 60.0
"""A worker that has lived for so long is started again at once."""

_log = logging.getLogger(__name__)


def worker_command(settings: Settings, log_format: str) -> list[str]:
    """The command line of a worker for this machine; what else it needs it reads from the environment, as we do."""
    return [
        *(sys.executable, "-m", "service.cli", "worker"),
        *("--platform", settings.platform, "--log-format", log_format),
    ]


@contextlib.contextmanager
def worker_beside(settings: Settings, *, log_format: str) -> Iterator[None]:
    """While the block runs, keep one worker alive; it has ended when the block has."""
    keeper = Supervisor(worker_command(settings, log_format))
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class Supervisor:
    """Starts a process, and again after a growing pause whenever it ends by itself."""

    def __init__(self, command: Sequence[str], *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._command = list(command)
        self._first_pause_s = first_pause_s
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="worker-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the process: it is asked to, and made to if it takes too long."""
        self._over.set()
        with self._lock:
            process = self._process
            if process is not None:
                process.send_signal(signal.SIGTERM)
        if process is not None:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                _log.warning("the worker did not end within %.0f s and is killed", END_S)
                process.kill()
        self._thread.join(timeout=5)

    def _keep(self) -> None:
        pause_s = self._first_pause_s
        while not self._over.is_set():
            began = time.monotonic()
            with self._lock:
                if self._over.is_set():
                    return
                # A session of its own: Ctrl-C at the terminal is ours, and we tell the worker once.
                self._process = process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, start_new_session=True
                )
            status = process.wait()
            if self._over.is_set():
                return
            if time.monotonic() - began >= HEALTHY_S:
                pause_s = self._first_pause_s
            _log.error("the worker ended with status %d; it is started again in %.0f s", status, pause_s)
            self._over.wait(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

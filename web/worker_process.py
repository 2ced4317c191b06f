"""A worker as a child process of the server, restarted when it dies."""

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from service.settings import Settings

STOP_TIMEOUT_S = 20.0
"""How long a worker may take to stop; it puts its jobs back into the queue meanwhile."""

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0
HEALTHY_S = 60.0
"""After a worker has run for so long, the delay before a restart is `FIRST_DELAY_S` again."""

_log = logging.getLogger(__name__)


def worker_command(settings: Settings, log_format: str) -> list[str]:
    """The command line of a worker for this machine. It reads all other settings from the environment it inherits."""
    return [
        *(sys.executable, "-m", "service.cli", "worker"),
        *("--platform", settings.platform, "--log-format", log_format),
    ]


@contextlib.contextmanager
def supervised_worker(settings: Settings, *, log_format: str) -> Iterator[None]:
    """Run a worker for the length of the block, and stop it at the end."""
    supervisor = Supervisor(worker_command(settings, log_format))
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()


class Supervisor:
    """Runs a command in a child process and restarts it whenever it ends by itself, each time after a longer delay."""

    def __init__(self, command: Sequence[str], *, first_delay_s: float = FIRST_DELAY_S) -> None:
        self._command = list(command)
        self._first_delay_s = first_delay_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="worker-supervisor", daemon=True)

    def start(self) -> None:
        """Start the supervising thread, which starts the process."""
        self._thread.start()

    def stop(self) -> None:
        """Send SIGTERM to the process, wait, and kill it if it takes longer than `STOP_TIMEOUT_S`."""
        self._stopping.set()
        with self._lock:
            process = self._process
            if process is not None:
                process.send_signal(signal.SIGTERM)
        if process is not None:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                _log.warning("the worker did not end within %.0f s and is killed", STOP_TIMEOUT_S)
                process.kill()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        delay_s = self._first_delay_s
        while not self._stopping.is_set():
            started_s = time.monotonic()
            with self._lock:
                if self._stopping.is_set():
                    return
                # A new session, so that Ctrl-C at the terminal reaches only the server, which then stops the worker.
                self._process = process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, start_new_session=True
                )
            status = process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - started_s >= HEALTHY_S:
                delay_s = self._first_delay_s
            _log.error("the worker ended with status %d; it is started again in %.0f s", status, delay_s)
            self._stopping.wait(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

"""The process sandbox: a jailed child process on this host, to run one's own code without Docker.

It claims no security boundary. `promises` holds the promises that it keeps on this machine.
"""

import contextlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from sandbox.base import Command, Completed, Limits, Promise, SandboxUnavailable
from sandbox.environment import COMMAND_ENVIRONMENT
from sandbox.jail.launch import is_host_root
from sandbox.jail.spec import JailSpec
from sandbox.output_capture import EndReason, OutputCapture
from sandbox.package import readable_copy
from sandbox.process.cgroups import Cgroup, make_cgroup
from sandbox.process.interpreter import Interpreter, inspect_interpreter
from sandbox.process.pipes import communicate

_ROOT_OF_PACKAGES = Path(__file__).resolve().parents[2]
_LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.jail.launch import main; main(int(sys.argv[2]))"
_UNPRIVILEGED_UID = 20000  # the user that root becomes if namespaces are not permitted
_ADDRESS_SPACE_MB = 4096  # for libraries and reservations, beyond the memory that a command may fill
_KILL_WAIT_S = 20.0
_ALWAYS = frozenset({Promise.BOUNDED_OUTPUT, Promise.WALL_CLOCK, Promise.NO_NEW_PRIVILEGES})
_BY_NAMESPACES = frozenset(
    {
        Promise.NO_NETWORK,
        Promise.READ_ONLY_ROOT,
        Promise.NO_HOST_FILES,
        Promise.NO_HOST_ENVIRONMENT,
        Promise.BOUNDED_DISK,
        Promise.NOTHING_LEFT_RUNNING,
    }
)
_BY_CGROUP = frozenset({Promise.BOUNDED_MEMORY, Promise.BOUNDED_PROCESSES})


class ProcessSandbox:
    """Runs each command as a child process, in namespaces of its own if this host permits them."""

    name = "process"

    def __init__(self, python: Path | None = None, *, namespaces: bool | None = None) -> None:
        """Find out what this host permits.

        Args:
            python: the interpreter of the commands. The default is the one that runs this program.
            namespaces: whether to use namespaces. None means: if they are permitted.

        Raises:
            SandboxUnavailable: torch is missing, namespaces are required but not permitted, or the unprivileged user
                cannot run the interpreter.
        """
        if python is None and find_spec("torch") is None:
            raise SandboxUnavailable(
                "The process sandbox needs PyTorch on this host.", "Install it: pip install 'kernelwright[process]'"
            )
        self._interpreter = inspect_interpreter(python)
        self._namespaces = True
        self._refusal = ""
        if namespaces is not False:
            self._refusal = self._try()
        if namespaces is False or (self._refusal and namespaces is None):
            self._namespaces = False
            problem = self._try()
            if problem:
                raise SandboxUnavailable(
                    f"{self._interpreter.python} cannot be run as an unprivileged user ({problem}).",
                    "Permit namespaces to root, or use a Python outside closed folders such as /root, or use Docker.",
                )
        elif self._refusal:
            raise SandboxUnavailable(f"Namespaces are not permitted here ({self._refusal}).", "Use Docker.")
        self.promises = self._kept()

    def describe(self) -> dict[str, str]:
        """The sandbox's name, its interpreter, and how it isolates commands from this host."""
        return {
            "name": self.name,
            "python": str(self._interpreter.python),
            "python_version": self._interpreter.version,
            "isolation": "namespaces" if self._namespaces else "none",
            "security_boundary": "none",
        }

    def prepare(self, command: Command) -> None:
        """See `sandbox.base.Sandbox.prepare`. This sandbox has nothing to prepare."""

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """See `sandbox.base.Sandbox.run`.

        Raises:
            SandboxUnavailable: the jail cannot be made at present, or the files of a device are not named.
            ValueError: the command's package cannot be run.
        """
        if command.devices.gpus and not command.devices.nodes:
            raise SandboxUnavailable("The process sandbox opens no GPU whose device files are unknown.", "Use Docker.")
        limits = command.limits
        capture = OutputCapture(limits.output_bytes, on_stderr)
        cgroup = make_cgroup(limits) if self._namespaces and os.geteuid() == 0 else None
        try:
            with readable_copy(command.package) as package, _scratch_folder() as scratch, _Report() as report:
                spec = self._spec(command, package, scratch, report.write_fd, cgroup)
                started = time.monotonic()
                ended = _run_jail(spec, command, capture, started + limits.wall_s, cancel)
                wall_s = time.monotonic() - started
                outcome = report.read()
            out_of_memory = cgroup is not None and cgroup.out_of_memory()
        finally:
            if cgroup is not None:
                cgroup.remove()
        if outcome.startswith("failed"):
            raise SandboxUnavailable(
                f"The process sandbox cannot run a command ({outcome.removeprefix('failed ')}).",
                "See: kernelwright doctor",
            )
        capture.finish_line()
        return Completed(
            exit_code=int(outcome.removeprefix("exit ")) if ended is EndReason.CLOSED and outcome else None,
            stdout=capture.stdout,
            stderr=capture.stderr,
            wall_s=wall_s,
            timed_out=ended is EndReason.TIMED_OUT,
            out_of_memory=out_of_memory,
            output_truncated=capture.truncated,
            cancelled=ended is EndReason.CANCELLED,
        )

    def _kept(self) -> frozenset[Promise]:
        promises = _ALWAYS
        if not self._namespaces:
            return promises
        promises |= _BY_NAMESPACES
        if is_host_root():
            promises |= {Promise.SEPARATE_UIDS}
            cgroup = make_cgroup(Limits())
            if cgroup is not None:
                cgroup.remove()
                promises |= _BY_CGROUP
        return promises

    def _try(self) -> str:
        """Run an empty program in the same way as commands, and return what went wrong; empty if nothing did."""
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "empty"
            package.mkdir()
            (package / "__main__.py").write_text("")
            try:
                done = self.run(Command(package, limits=Limits(wall_s=60, memory_mb=1024, disk_mb=16)))
            except SandboxUnavailable as error:
                return error.problem
        return "" if done.exit_code == 0 else f"exit {done.exit_code}: {done.stderr.decode('utf-8', 'replace')[-200:]}"

    def _spec(self, command: Command, package: Path, scratch: Path, report_fd: int, cgroup: Cgroup | None) -> JailSpec:
        limits, interpreter = command.limits, self._interpreter
        inside_tmp = "/tmp" if self._namespaces else str(scratch)  # noqa: S108 the jail's own
        harness = "/harness" if self._namespaces else str(package.parent)
        return JailSpec(
            argv=(str(interpreter.python), "-P", "-s", "-m", package.name, *command.args),
            env=_environment(interpreter, inside_tmp, harness, command.devices.libraries),
            report_fd=report_fd,
            namespaces=self._namespaces,
            scratch=str(scratch),
            package=str(package),
            visible=(*interpreter.folders, *command.devices.libraries),
            warm=interpreter.warm,
            uid=_UNPRIVILEGED_UID if os.geteuid() == 0 and not self._namespaces else None,
            cgroup=tuple(cgroup.entries()) if cgroup is not None else (),
            disk_mb=limits.disk_mb,
            address_space_mb=_address_space_mb(command, cgroup),
            nodes=command.devices.nodes,
            loopback=command.loopback,
            processes=limits.processes + (0 if os.geteuid() == 0 else _tasks_of_this_user()),
            processors=_processors(limits.cpus),
        )


def _address_space_mb(command: Command, cgroup: Cgroup | None) -> int | None:
    """The bound on each process where no control group bounds the memory of all; none for a GPU's driver, which
    reserves more addresses than the host has memory.
    """
    if cgroup is not None or command.devices.nodes:
        return None
    return command.limits.memory_mb + _ADDRESS_SPACE_MB


def _run_jail(
    spec: JailSpec, command: Command, capture: OutputCapture, deadline: float, cancel: threading.Event | None
) -> EndReason:
    """Start the jail's program, communicate with the command, and end both in any case."""
    with tempfile.TemporaryFile() as spec_file:
        spec_file.write(spec.to_json().encode())
        spec_file.seek(0)
        # The spec is passed in a file, because a command can read the command line of the jail's first process.
        jail = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(_ROOT_OF_PACKAGES), str(spec_file.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(spec.report_fd, spec_file.fileno()),
            start_new_session=True,
        )
        with jail:
            try:
                assert jail.stdin is not None and jail.stdout is not None and jail.stderr is not None
                ended = communicate(
                    jail.stdin, jail.stdout, jail.stderr, command.stdin, capture, deadline=deadline, cancel=cancel
                )
                while ended is EndReason.CLOSED and jail.poll() is None:  # it has closed its streams but still runs
                    if cancel is not None and cancel.is_set():
                        ended = EndReason.CANCELLED
                    elif time.monotonic() > deadline:
                        ended = EndReason.TIMED_OUT
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        jail.wait(0.05)
                return ended
            finally:
                jail.terminate()
                try:
                    jail.wait(_KILL_WAIT_S)
                except subprocess.TimeoutExpired:
                    jail.kill()


class _Report:
    """A pipe on which the jail's program reports how the command ended."""

    def __enter__(self) -> "_Report":
        self._read_fd, self.write_fd = os.pipe()
        return self

    def __exit__(self, *exception: object) -> None:
        for fd in (self._read_fd, self.write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)

    def read(self) -> str:
        """The first line that the jail's program wrote; empty if it was killed before."""
        os.set_blocking(self._read_fd, False)
        try:
            return os.read(self._read_fd, 4096).decode("utf-8", "replace").partition("\n")[0]
        except BlockingIOError:
            return ""


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kernelwright-scratch-", ignore_cleanup_errors=True) as folder:
        if os.geteuid() == 0:
            Path(folder).chmod(0o1777)
        yield Path(folder)


def _environment(
    interpreter: Interpreter, scratch: str, harness: str, libraries: tuple[str, ...] = ()
) -> dict[str, str]:
    path = f"{interpreter.python.parent}:{COMMAND_ENVIRONMENT['PATH']}"
    environment = {**COMMAND_ENVIRONMENT, "PATH": path, "PYTHONPATH": harness, "HOME": scratch, "TMPDIR": scratch}
    if libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
    if shutil.which("openssl", path=path) is None:  # TorchInductor hashes precompiled headers with openssl
        environment["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    return environment


def _processors(cpus: float | None) -> tuple[int, ...]:
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed if cpus is None else allowed[: max(1, math.ceil(cpus))])


def _tasks_of_this_user() -> int:
    """The number of this user's threads. The kernel counts all of them against the limit on processes."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*/task"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                count += sum(1 for _ in folder.iterdir())
    return count

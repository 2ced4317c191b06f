"""The jail's program: it makes the jail, runs the command in it, and kills every process that the command leaves."""

import contextlib
import os
import pwd
import resource
import signal
from pathlib import Path
from types import FrameType
from typing import NoReturn

from sandbox.jail import kernel
from sandbox.jail.kernel import JailError
from sandbox.jail.root import build_and_enter_root, link_warm_files
from sandbox.jail.spec import JailSpec

_HOST_UID_OF_ROOT = 1_900_000_000  # the start of an unused range, in which no user of this host owns anything
_UIDS = 65536
_MEGABYTE = 1024 * 1024


def main(spec_fd: int) -> None:
    """Run the command of the spec that the file descriptor holds. SIGTERM kills the command.

    One line is written to the report descriptor: `exit N` (128 + signal for a killed command), or `failed REASON`.
    """
    with os.fdopen(spec_fd) as file:
        spec = JailSpec.from_json(file.read())
    os.umask(0o022)
    os.set_inheritable(spec.report_fd, False)
    try:
        kernel.die_with_parent()
        code = _run_jailed(spec) if spec.namespaces else _run_bare(spec)
    except (OSError, JailError) as error:
        _report(spec, f"failed {error}")
    else:
        _report(spec, f"exit {code}")


def is_host_root() -> bool:
    """Whether this process is root on the host, and not only in a user namespace."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


def _run_jailed(spec: JailSpec) -> int:
    """Create the namespaces and wait for their first process. When it ends, the kernel kills all others in them."""
    flags = kernel.NEW_HOST_NAME | kernel.NEW_IPC | kernel.NEW_PROCESSES | kernel.NEW_NETWORK
    uid, gid, privileged = os.getuid(), os.getgid(), is_host_root()
    kernel.unshare(flags if privileged else flags | kernel.NEW_USERS)
    if not privileged:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    asked, ask = os.pipe()
    answer, answering = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(asked)
        os.close(answering)
        _be_init(spec, privileged, ask, answer)
    os.close(ask)
    os.close(answer)
    _let_go_of_streams()
    _kill_on_sigterm(init)
    if os.read(asked, 1):
        for kind in ("gid_map", "uid_map"):
            Path(f"/proc/{init}/{kind}").write_text(f"0 {_HOST_UID_OF_ROOT} {_UIDS}")
        os.write(answering, b"!")
    return _reap_until(init)


def _be_init(spec: JailSpec, privileged: bool, ask: int, answer: int) -> NoReturn:
    """Run the first process of the namespaces.

    It builds the root folder, drops its privileges, starts the command, and reaps processes until the command ends.
    """
    try:
        kernel.die_with_parent()
        for file in spec.cgroup:
            Path(file).write_text("0")
        if spec.loopback:
            with contextlib.suppress(JailError):  # whoever needs it says so, and the rest of the command does without
                kernel.raise_loopback()
        build_and_enter_root(spec)
        scratch = Path(spec.env["TMPDIR"])
        if spec.warm:
            link_warm_files(spec.warm, scratch / "torchinductor_root", _HOST_UID_OF_ROOT if privileged else None)
        if privileged:
            _become_nobody_on_the_host(ask, answer)
        kernel.drop_capabilities()
        os.close(ask)
        os.close(answer)
        command = os.fork()
        if command == 0:
            _become_command(spec)
        _let_go_of_streams()
        os._exit(_reap_until(command))
    except (OSError, JailError) as error:
        _report(spec, f"failed {error}")
    os._exit(1)


def _become_nobody_on_the_host(ask: int, answer: int) -> None:
    """Enter a user namespace whose users, with root, map to unused users of the host.

    The process outside the namespaces writes the mapping.
    """
    kernel.unshare(kernel.NEW_USERS)
    os.write(ask, b"?")
    if os.read(answer, 1) != b"!":
        raise JailError("user ids could not be mapped")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.die_with_parent()


def _run_bare(spec: JailSpec) -> int:
    """Run the command without namespaces. Processes that it leaves behind are adopted and killed."""
    kernel.adopt_orphans()
    if spec.warm:
        cache = Path(spec.env["TMPDIR"]) / f"torchinductor_{_user_name(spec.uid)}"
        link_warm_files(spec.warm, cache, spec.uid)
    command = os.fork()
    if command == 0:
        _become_command(spec)
    _let_go_of_streams()
    _kill_on_sigterm(command)
    code = _reap_until(command)
    _kill_descendants()
    return code


def _become_command(spec: JailSpec) -> NoReturn:
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if spec.uid is not None:
            os.setgroups([])
            os.setresgid(spec.uid, spec.uid, spec.uid)
            os.setresuid(spec.uid, spec.uid, spec.uid)
        if not spec.namespaces:
            kernel.die_with_parent()
        _set_limits(spec)
        kernel.forbid_new_privileges()
        os.execve(spec.argv[0], spec.argv, spec.env)  # noqa: S606 no shell is wanted
    except (OSError, ValueError, JailError) as error:
        _report(spec, f"failed to start {spec.argv[0]}: {error}")
    os._exit(1)


def _set_limits(spec: JailSpec) -> None:
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: spec.disk_mb * _MEGABYTE,
        resource.RLIMIT_NPROC: spec.processes,
        resource.RLIMIT_NOFILE: 4096,
    }
    if spec.address_space_mb is not None:
        bounds[resource.RLIMIT_AS] = spec.address_space_mb * _MEGABYTE
    for which, bound in bounds.items():
        hard = resource.getrlimit(which)[1]
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (value, value))
    os.sched_setaffinity(0, spec.processors)


def _let_go_of_streams() -> None:
    """Close the standard streams here, so that they end when the command closes them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _kill_on_sigterm(pid: int) -> None:
    def kill(signum: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, kill)


def _reap_until(pid: int) -> int:
    """Reap processes until `pid` ends.

    Returns:
        The exit status of `pid`; 128 + signal if a signal killed it.
    """
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _kill_descendants() -> None:
    """Stop, then kill all descendants until there are none. Orphans become children of this process meanwhile."""
    while below := _descendants():
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signum)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    unseen = [os.getpid()]
    while unseen:
        below = children.get(unseen.pop(), [])
        found.update(below)
        unseen += below
    return found


def _user_name(uid: int | None) -> str:
    uid = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid_{uid}"


def _report(spec: JailSpec, line: str) -> None:
    os.write(spec.report_fd, f"{line}\n".encode())

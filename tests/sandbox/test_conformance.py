"""What every sandbox keeps whatever runs in it: one suite for Docker and the process sandbox, with hostile programs.

The process sandbox is tried twice: as it is here, and `bare`, as it is where the host permits no namespaces. A promise
that a sandbox does not make is named as such; none is silently absent.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from sandbox.base import Command, Completed, Limits, Promise, Sandbox
from sandbox.check import check_promises
from sandbox.docker.sandbox import DockerSandbox
from sandbox.owner import this_process
from sandbox.process.sandbox import ProcessSandbox
from tests.support.cpu_platform import IMAGE

BARE_MINIMUM = {Promise.BOUNDED_OUTPUT, Promise.WALL_CLOCK, Promise.NO_NEW_PRIVILEGES}
SMALL = Limits(wall_s=60, memory_mb=1024, processes=64, disk_mb=64)


@dataclass
class Runner:
    """Runs source text in a sandbox, marked so that whatever is left of it can be found."""

    sandbox: Sandbox
    folder: Path
    marker: str

    def command(self, source: str, *args: str, stdin: bytes = b"", limits: Limits = SMALL) -> Command:
        package = self.folder / "hostile"
        package.mkdir(exist_ok=True)
        (package / "__main__.py").write_text(source)
        return Command(package, args=(self.marker, *args), stdin=stdin, limits=limits, label=self.marker)

    def __call__(self, source: str, *args: str, stdin: bytes = b"", limits: Limits = SMALL) -> Completed:
        return self.sandbox.run(self.command(source, *args, stdin=stdin, limits=limits))


@pytest.fixture
def run(any_sandbox: Sandbox, tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(any_sandbox, tmp_path, f"marker-{uuid.uuid4()}")
    others = set(containers_of_this_process()) if any_sandbox.name == "docker" else set()
    yield runner
    assert processes_with(runner.marker) == [], "processes were left running"
    if any_sandbox.name == "docker":
        assert set(containers_of_this_process()) <= others, "containers were left"


def processes_with(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def containers_of_this_process() -> list[str]:
    return containers_of(this_process().to_label())


def containers_of(owner: str) -> list[str]:
    client = docker.from_env()
    try:
        filters = {"label": f"kernelwright.owner={owner}"}
        return [container.id for container in client.containers.list(all=True, filters=filters)]
    finally:
        client.close()


# Getting ready for a command


def test_a_prepared_command_runs_as_any_other(run: Runner) -> None:
    source = "import sys; print(sys.stdin.read(), sys.argv[2])"
    for text in ("once", "twice"):
        run.sandbox.prepare(run.command(source, "x"))
        run.sandbox.prepare(run.command(source, "x"))  # asking again changes nothing
        assert run(source, "x", stdin=text.encode()).stdout == f"{text} x\n".encode()


def test_another_command_than_the_prepared_one_is_run_as_it_is(run: Runner) -> None:
    run.sandbox.prepare(run.command("print('prepared')"))
    assert run("print('changed')").stdout == b"changed\n"
    assert run("print('changed')", "argument").stdout == b"changed\n"
    run.sandbox.prepare(run.command("this is not Python"))
    assert run("this is not Python").exit_code == 1
    run.sandbox.prepare(run.command("print(1)"))
    assert run("print(1)").stdout == b"1\n"


@pytest.mark.docker
def test_a_prepared_container_does_its_start_before_and_keeps_its_whole_limit_of_time(docker_sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "slow"
        package.mkdir()
        (package / "__main__.py").write_text("import time, sys; time.sleep(3); sys.stdin.read(); time.sleep(1)")
        command = Command(package, limits=Limits(wall_s=3, memory_mb=256))
        assert docker_sandbox.run(command).timed_out
        docker_sandbox.prepare(command)
        time.sleep(6)
        done = docker_sandbox.run(command)
    assert done.exit_code == 0 and done.wall_s < 3


@pytest.mark.docker
def test_nothing_prepared_outlives_the_sandbox_or_its_process(tmp_path: Path) -> None:
    sandbox = DockerSandbox(IMAGE.tag)
    package = tmp_path / "waits"
    package.mkdir()
    (package / "__main__.py").write_text("import sys; sys.stdin.read()")
    before = set(containers_of_this_process())
    sandbox.prepare(Command(package))
    sandbox.close()
    assert set(containers_of_this_process()) <= before
    script = (
        "from sandbox.docker.sandbox import DockerSandbox; from sandbox.base import Command; from pathlib import Path\n"
        "from sandbox.owner import this_process; print(this_process().to_label(), flush=True)\n"
        f"sandbox = DockerSandbox({IMAGE.tag!r}); sandbox.prepare(Command(Path({str(package)!r})))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert containers_of(ended.stdout.strip()) == []


# What is promised, and that it is kept


@pytest.mark.exclusive
def test_every_promise_is_kept_on_this_machine(any_sandbox: Sandbox) -> None:
    checks = check_promises(any_sandbox, image_variables=IMAGE.variables)
    assert [check.promise for check in checks] == list(Promise)
    assert [(check.promise, check.detail) for check in checks if check.kept is False] == []
    for check in checks:
        assert (check.kept is None) == (check.promise not in any_sandbox.promises)


@pytest.mark.docker
def test_docker_promises_everything(docker_sandbox: Sandbox) -> None:
    assert docker_sandbox.promises == frozenset(Promise)


def test_the_process_sandbox_says_what_it_does_not_promise(
    process_sandbox: ProcessSandbox, bare_process_sandbox: ProcessSandbox
) -> None:
    assert bare_process_sandbox.promises == BARE_MINIMUM
    assert bare_process_sandbox.describe()["isolation"] == "none"
    assert process_sandbox.promises >= BARE_MINIMUM
    assert process_sandbox.describe()["security_boundary"] == "none"


def test_a_promise_that_is_broken_is_found(bare_process_sandbox: ProcessSandbox) -> None:
    class Boastful:
        name = "boastful"
        promises = frozenset({Promise.NO_NETWORK, Promise.NO_HOST_FILES, Promise.SEPARATE_UIDS, Promise.WALL_CLOCK})
        run = staticmethod(bare_process_sandbox.run)
        describe = staticmethod(bare_process_sandbox.describe)

    kept = {check.promise for check in check_promises(Boastful()) if check.kept}
    broken = {check.promise for check in check_promises(Boastful()) if check.kept is False}
    assert kept == {Promise.WALL_CLOCK}
    assert broken == {Promise.NO_NETWORK, Promise.NO_HOST_FILES, Promise.SEPARATE_UIDS}


# Ordinary programs


def test_input_arguments_output_and_exit_code_go_through(run: Runner) -> None:
    done = run(
        "import sys\nprint(sys.argv[2:], sys.stdin.buffer.read())\nprint('e', file=sys.stderr)\nsys.exit(7)",
        "a b",
        "$(x)",
        stdin=b"\x00\xff",
    )
    assert done.exit_code == 7
    assert done.stdout == b"['a b', '$(x)'] b'\\x00\\xff'\n"
    assert done.stderr == b"e\n"
    assert not (done.timed_out or done.out_of_memory or done.output_truncated or done.cancelled)


def test_a_process_that_was_confined_to_a_core_runs_commands_on_that_core_alone(run: Runner) -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        done = run("import os; print(os.sched_getaffinity(0))")
    finally:
        os.sched_setaffinity(0, before)
    assert done.stdout.decode() == f"{{{core}}}\n"


def test_a_large_input_arrives_whole(run: Runner) -> None:
    data = os.urandom(1024 * 1024) * 48
    done = run("import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=data)
    assert done.stdout.decode().strip() == hashlib.sha256(data).hexdigest()


def test_input_that_nobody_reads_holds_nothing_up(run: Runner) -> None:
    done = run("print('did not read')", stdin=bytes(32 * 1024 * 1024))
    assert done.exit_code == 0
    assert done.stdout == b"did not read\n"


def test_lines_of_standard_error_come_as_they_are_written(run: Runner) -> None:
    source = "import sys, time\nfor i in range(3): print('step', i, file=sys.stderr, flush=True); time.sleep(0.3)"
    seen: list[tuple[float, bytes]] = []
    done = run.sandbox.run(run.command(source), on_stderr=lambda line: seen.append((time.monotonic(), line)))
    assert done.exit_code == 0
    assert [line for _, line in seen] == [b"step 0", b"step 1", b"step 2"]
    assert seen[2][0] - seen[0][0] > 0.4


def test_death_by_a_signal_is_told_as_a_shell_tells_it(run: Runner) -> None:
    assert run("import os; os.abort()").exit_code == 128 + signal.SIGABRT


def test_an_exception_is_an_exit_code_and_a_traceback(run: Runner) -> None:
    done = run("raise RuntimeError('broken')")
    assert done.exit_code == 1
    assert b"RuntimeError: broken" in done.stderr


def test_nothing_that_may_be_written_is_on_the_search_path(run: Runner) -> None:
    source = """
import os, sys
from pathlib import Path
print(os.getcwd())
for entry in map(Path, sys.path):
    nearest = next(path for path in (entry, *entry.parents) if path.exists())
    print(entry, os.access(nearest, os.W_OK))
"""
    folder, *search_path = run(source).stdout.decode().splitlines()
    assert folder == "/"
    assert len(search_path) >= 3
    if run.sandbox.describe().get("isolation") != "none":
        assert [line for line in search_path if not line.endswith(" False")] == []


def test_the_user_has_a_name(run: Runner) -> None:
    assert run("import getpass; print(getpass.getuser())").stdout == b"runner\n"


def test_the_scratch_folder_takes_files_and_runs_programs(run: Runner) -> None:
    source = """
import os, subprocess, tempfile
path = os.path.join(tempfile.gettempdir(), "program")
with open(path, "w") as file:
    file.write("#!/bin/sh\\necho ran")
os.chmod(path, 0o755)
print(subprocess.run([path], capture_output=True, text=True).stdout, os.environ["HOME"] == tempfile.gettempdir())
"""
    assert run(source).stdout == b"ran\n True\n"


def test_code_may_be_given_other_users_where_that_is_promised(run: Runner) -> None:
    source = """
import os
for uid in (20001, 20002):
    pid = os.fork()
    if pid == 0:
        os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
        with open(os.path.join(os.environ["TMPDIR"], str(uid)), "w") as file:
            file.write("x")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(os.stat(os.path.join(os.environ["TMPDIR"], str(uid))).st_uid)
"""
    done = run(source)
    if Promise.SEPARATE_UIDS in run.sandbox.promises:
        assert done.stdout == b"20001\n20002\n"
    else:
        assert b"PermissionError" in done.stderr


@pytest.mark.parametrize("name", ["no_main", "not-a-name"])
def test_a_package_that_cannot_be_run_is_refused(any_sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    package = tmp_path / name
    package.mkdir()
    if name != "no_main":
        (package / "__main__.py").write_text("")
    with pytest.raises(ValueError, match=r"__main__\.py"):
        any_sandbox.run(Command(package))


COMPILED = """
import os, sys
from . import value
unchecked = os.path.exists(value.__cached__) and open(value.__cached__, "rb").read(5)[4] == 1
print(value.VALUE, value.look.__code__.co_filename == value.__file__, unchecked, *sys.version_info[:2])
from . import broken
"""


def test_a_package_comes_compiled_and_as_it_is_now(any_sandbox: Sandbox, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "broken.py").write_text("of no syntax")
    (package / "__main__.py").write_text(COMPILED)
    for now in ("1", "2"):  # of the same length, within a second
        (package / "value.py").write_text(f"VALUE = {now}\ndef look(): pass\n")
        done = any_sandbox.run(Command(package, limits=SMALL))
        value, own_path, unchecked, *version = done.stdout.decode().split()
        assert (value, own_path) == (now, "True")
        assert unchecked == "True" or version != [str(number) for number in sys.version_info[:2]]
        assert b"SyntaxError" in done.stderr


# Hostile programs


def test_an_endless_loop_that_ignores_signals_is_killed_in_time(run: Runner) -> None:
    source = "import signal\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: pass"
    done = run(source, limits=Limits(wall_s=1, memory_mb=512))
    assert done.timed_out
    assert done.exit_code is None
    assert done.wall_s < 10


def test_closing_the_streams_does_not_escape_the_clock(run: Runner) -> None:
    done = run(
        "import os, time\nfor i in (0, 1, 2): os.close(i)\ntime.sleep(60)", limits=Limits(wall_s=1, memory_mb=512)
    )
    assert done.timed_out
    assert done.wall_s < 10


@pytest.mark.exclusive
def test_a_fork_bomb_ends_with_its_command(run: Runner) -> None:
    source = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    done = run(source, limits=Limits(wall_s=2, memory_mb=1024, processes=48))
    assert done.timed_out
    assert done.wall_s < 15


def test_a_hundred_gigabytes_are_not_to_be_had(run: Runner) -> None:
    done = run("block = bytearray(100 << 30)\nfor i in range(0, len(block), 4096): block[i] = 1")
    assert done.exit_code != 0
    assert done.out_of_memory or b"MemoryError" in done.stderr


def test_memory_filled_step_by_step_is_told_where_it_is_bounded(run: Runner) -> None:
    if Promise.BOUNDED_MEMORY not in run.sandbox.promises:
        assert run("print('not promised, not tried')").exit_code == 0
        return
    done = run(
        "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 24)))", limits=Limits(wall_s=60, memory_mb=256)
    )
    assert done.out_of_memory
    assert done.exit_code == 128 + signal.SIGKILL


def test_a_child_killed_for_memory_is_told_though_its_parent_lives(run: Runner) -> None:
    if Promise.BOUNDED_MEMORY not in run.sandbox.promises:
        assert run("print('not promised, not tried')").exit_code == 0
        return
    source = """
import os
pid = os.fork()
if pid == 0:
    held = []
    while True:
        held.append(bytearray(b"x" * (1 << 24)))
print(os.waitpid(pid, 0)[1])
"""
    done = run(source, limits=Limits(wall_s=60, memory_mb=256))
    assert (done.exit_code, done.stdout, done.out_of_memory) == (0, b"9\n", True)


def test_gigabytes_of_output_are_cut_off(run: Runner) -> None:
    source = "import os, sys\nwhile True: os.write(1 + int(sys.argv[2]), b'x' * 65536)"
    for stream in ("0", "1"):
        done = run(source, stream, limits=Limits(wall_s=20, memory_mb=512, output_bytes=1_000_000))
        assert done.output_truncated
        assert len(done.stdout) + len(done.stderr) == 1_000_000
        assert done.exit_code is None
        assert not done.timed_out


def test_a_full_disk_is_an_error_inside_and_no_more(run: Runner) -> None:
    if Promise.BOUNDED_DISK not in run.sandbox.promises:
        assert run("print('not promised, not tried')").exit_code == 0
        return
    source = """
import os, tempfile
with open(os.path.join(tempfile.gettempdir(), "fill"), "wb") as file:
    for _ in range(4096):
        file.write(bytes(1 << 20))
"""
    done = run(source, limits=Limits(wall_s=60, memory_mb=1024, disk_mb=32))
    assert done.exit_code == 1
    assert b"No space left" in done.stderr or b"File too large" in done.stderr


def test_no_variable_of_the_host_is_seen(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    done = run("import os; print(dict(os.environ))")
    assert b"sk-of-the-host" not in done.stdout
    assert b"OPENAI_API_KEY" not in done.stdout


def test_files_of_the_host_are_not_there(run: Runner, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")
    done = run("import sys; print(open(sys.argv[2]).read())", str(secret))
    if Promise.NO_HOST_FILES in run.sandbox.promises:
        assert done.exit_code == 1
        assert b"of the host" not in done.stdout


def test_a_daemon_left_behind_dies(run: Runner) -> None:
    source = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    for stream in (0, 1, 2):
        os.close(stream)
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "sleep 600 #" + sys.argv[1]])
    os._exit(0)
os.wait()
time.sleep(0.2)
print("left")
"""
    done = run(source)
    assert done.stdout == b"left\n"
    assert done.wall_s < 20


def test_a_daemon_that_holds_the_streams_does_not_hold_up_the_end(run: Runner) -> None:
    done = run("import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\nprint('left')")
    assert (done.exit_code, done.stdout) == (0, b"left\n")
    assert done.wall_s < 20


# Being stopped


def test_cancelling_kills_at_once(run: Runner) -> None:
    cancel = threading.Event()
    source = "import sys, time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)"
    done = run.sandbox.run(run.command(source), on_stderr=lambda line: cancel.set(), cancel=cancel)
    assert done.cancelled
    assert done.exit_code is None
    assert done.wall_s < 10


def test_an_interrupt_in_the_calling_thread_kills_and_goes_on(run: Runner) -> None:
    def interrupt(line: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.sandbox.run(
            run.command("import sys, time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)"),
            on_stderr=interrupt,
        )


def test_commands_at_the_same_time_do_not_disturb_each_other(run: Runner) -> None:
    results: dict[int, Completed] = {}

    def one(number: int) -> None:
        results[number] = run.sandbox.run(command, on_stderr=None)

    command = run.command("import sys; print(len(sys.stdin.buffer.read()))", stdin=bytes(1_000_000))
    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number].stdout for number in range(3)] == [b"1000000\n"] * 3


def test_nothing_outlives_a_killed_host_process_of_the_process_sandbox(
    process_sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    runner = Runner(process_sandbox, tmp_path, f"marker-{uuid.uuid4()}")
    command = runner.command("import time; time.sleep(600)")
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, "process", str(command.package), runner.marker, IMAGE.tag], cwd=ROOT
    )
    with host:
        wait_for(lambda: len(processes_with(runner.marker)) > 1)
        host.kill()
    wait_for(lambda: processes_with(runner.marker) == [])


@pytest.mark.docker
def test_the_container_of_a_killed_host_process_is_swept(docker_sandbox: Sandbox, tmp_path: Path) -> None:
    from sandbox.docker.sandbox import sweep_orphans

    runner = Runner(docker_sandbox, tmp_path, f"marker-{uuid.uuid4()}")
    command = runner.command("import time; time.sleep(600)")
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, "docker", str(command.package), runner.marker, IMAGE.tag], cwd=ROOT
    )
    with host:
        wait_for(lambda: len(processes_with(runner.marker)) > 1)
        sweep_orphans()
        assert len(processes_with(runner.marker)) > 1, "the container of a living owner was swept"
        host.kill()
    wait_for(lambda: processes_with(runner.marker) != [])
    assert sweep_orphans() >= 1
    wait_for(lambda: processes_with(runner.marker) == [])


ROOT = Path(__file__).parents[2]
HOST = """
import sys
from pathlib import Path
from sandbox.base import Command
from sandbox.choose import choose_sandbox
choose_sandbox(sys.argv[1], own_code_only=True, image=sys.argv[4]).run(Command(Path(sys.argv[2]), args=(sys.argv[3],)))
"""


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)

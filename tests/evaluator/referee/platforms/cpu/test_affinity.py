"""Which core does what while calls are timed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.platforms.cpu import affinity
from evaluator.referee.runner.platforms.cpu import imports as cpu_imports
from evaluator.referee.runner.platforms.cpu import threads as placement
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

ROOT = Path(__file__).parents[5]


def test_nothing_imports_torch_before_its_threads_are_to_be_bound() -> None:
    code = "import sys, evaluator.referee.fork_server.imports; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_torch_that_is_there_already_is_a_fault_of_the_referee() -> None:
    code = "import torch; from evaluator.referee.runner.platforms.cpu.imports import CpuImports as I; "
    code += "I().before_torch()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert "torch was imported before it was told to bind its threads to cores" in found.stderr


def test_the_referee_runs_on_the_first_core_only_while_it_measures() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), affinity.on_the_callers():
        assert os.sched_getaffinity(0) == {min(before)}
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before


def test_a_fork_tells_whether_a_library_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    from torch._inductor.cpu_vec_isa import VecISA

    assert hasattr(VecISA, "_probe_load"), "torch asks in another way now"
    assert cpu_imports._loads_in_a_fork(None, "libc.so.6")
    assert not cpu_imports._loads_in_a_fork(None, str(tmp_path / "broken.so"))
    assert not cpu_imports._loads_in_a_fork(None, str(tmp_path / "missing.so"))


def test_a_process_that_gives_way_does_so_with_all_its_threads() -> None:
    code = """
import os, threading
import evaluator.referee.runner.platforms.cpu.threads as placement
waits = threading.Event()
threads = [threading.Thread(target=waits.wait, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
placement.give_way()
threads.append(threading.Thread(target=waits.wait, daemon=True))
threads[-1].start()
print(*{os.sched_getscheduler(int(task)) == os.SCHED_IDLE for task in os.listdir("/proc/self/task")})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.usefixtures("every_core")
def test_threads_that_a_timed_call_starts_run_on_every_core() -> None:
    code = """
import ctypes, os
import evaluator.referee.runner.platforms.cpu.threads as placement

every, found, libc = os.sched_getaffinity(0), [], ctypes.CDLL(None)
start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: found.append(os.sched_getaffinity(0)))


def cores_of_a_new_thread():
    thread = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, start, None)  # as std::thread does
    libc.pthread_join(thread, None)
    return found.pop()


os.sched_setaffinity(0, {min(every)})  # as OpenMP does
assert cores_of_a_new_thread() == {min(every)}
placement.bind_to_first(every)
assert os.sched_getaffinity(0) == {min(every)}
assert cores_of_a_new_thread() == every
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
"""

# Once its calls are many, it must be among the timed ones; then it tells where its threads may run by failing.
CANDIDATE = """
import os
from pathlib import Path

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        y = torch.tanh(x)
        self.calls += 1
        if self.calls == 20:
            words = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
            cores = [text.split("Cpus_allowed_list:")[1].split()[0] for text in words]
            raise RuntimeError(f"threads on {sorted(cores)}")
        return y
"""


@pytest.mark.docker
@pytest.mark.usefixtures("every_core")
def test_every_thread_of_a_timed_runner_is_on_a_core_of_its_own(docker_sandbox: Sandbox) -> None:
    found = evaluate(
        task_from_source(TASK, name="tanh", where="tanh"),
        CANDIDATE,
        sandbox=docker_sandbox,
        platform=load_platform("cpu"),
        effort=Effort(wall_s=120, memory_mb=4096, measure_budget_s=2, baselines=("eager",)),
    )
    assert found.verdict == Verdict.CRASHED, found.message
    expected = [str(core) for core in sorted(os.sched_getaffinity(0))]
    assert f"threads on {expected}" in found.message + found.detail


@pytest.mark.usefixtures("every_core")
def test_what_works_beside_keeps_off_the_first_core_and_to_one_thread() -> None:
    before, count = os.sched_getaffinity(0), torch.get_num_threads()
    with affinity.on_the_callers(), placement.beside_the_callers(before):
        assert os.sched_getaffinity(0) == (before - {min(before)} or before)
        assert torch.get_num_threads() == 1
    assert os.sched_getaffinity(0) == before
    assert torch.get_num_threads() == count

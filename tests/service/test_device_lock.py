"""One at a time on a device: others wait and say so, and the dead hold nothing."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from db.records import Owner
from evaluator.platforms import load_platform
from evaluator.platforms.cpu.platform import CpuPlatform
from sandbox.base import Completed
from service.cancellation import CancelToken, cancel_when
from service.device_lock import WaitCancelled, hold_device, lock_paths
from service.evaluation_context import BEGINNING, WAITING, EvaluationContext
from service.jobs.liveness import is_dead, this_process
from service.jobs.persistence import outcome_of
from service.settings import load_settings
from tasks.task import Task
from tests.support.commands import GOOD, OP, ROOT

HOLD = """
import sys, time
from pathlib import Path
from service.device_lock import hold_device
with hold_device([Path(lock) for lock in sys.argv[2:]], on_wait=lambda: None):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


def holder(seconds, *locks):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(seconds), *map(str, locks)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline().strip() == "held"
    return child


def wait_for(child):
    child.wait()
    child.stdout.close()


def no_wait():
    raise AssertionError("there was nobody to wait for")


def test_a_free_device_is_had_at_once_and_given_back(tmp_path):
    for _ in range(3):
        with hold_device([tmp_path / "lock"], on_wait=no_wait):
            pass


def test_who_comes_second_is_told_once_and_waits(tmp_path):
    child = holder(0.8, tmp_path / "lock")
    told = []
    with hold_device([tmp_path / "lock"], on_wait=lambda: told.append(1)):
        assert child.poll() is not None or told == [1]
    assert told == [1]
    wait_for(child)


def test_kill_9_frees_the_device(tmp_path):
    child = holder(60, tmp_path / "lock")
    os.kill(child.pid, signal.SIGKILL)
    begun = time.monotonic()
    with hold_device([tmp_path / "lock"], on_wait=lambda: None):
        assert time.monotonic() - begun < 5
    wait_for(child)


def test_waiting_can_be_called_off(tmp_path):
    child = holder(60, tmp_path / "lock")
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(WaitCancelled), hold_device([tmp_path / "lock"], on_wait=lambda: None, cancel=cancel):
        pass
    child.kill()
    wait_for(child)


class Answering:
    """A sandbox in which every command takes as long as it takes to say so."""

    name = "answering"
    promises = frozenset()
    took_s = 0.2

    def run(self, command, **_):
        self.asked = json.loads(command.stdin)
        time.sleep(self.took_s)
        return Completed(None, b"", b"", self.took_s, timed_out=True)

    def describe(self):
        return {"name": self.name}


def test_what_an_evaluation_took_leaves_out_the_wait_for_the_device(tmp_path):
    """The budget's wall time asks of the next evaluation what the longest one took."""
    platform = load_platform("cpu")
    settings = load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path)
    context = EvaluationContext(Task("op", OP), platform, Answering(), settings)
    context.evaluate(
        GOOD, on_progress=lambda text: None, cancel=CancelToken()
    )  # what is looked up once, such as the device
    child = holder(1.5, *lock_paths(tmp_path, platform.exclusive_resources(0)))
    told, begun = [], time.monotonic()
    evaluation = context.evaluate(GOOD, on_progress=told.append, cancel=CancelToken())
    elapsed_s = time.monotonic() - begun
    wait_for(child)
    assert told == [WAITING, BEGINNING]
    outcome = outcome_of(evaluation, platform, candidate_hash="c", evaluation_id="e")
    assert Answering.took_s <= outcome.took_s < elapsed_s - 0.5


def test_the_device_that_the_settings_name_is_measured_on(tmp_path):
    settings = load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path, device=3)
    sandbox = Answering()
    context = EvaluationContext(Task("op", OP), load_platform("cpu"), sandbox, settings)
    evaluation = context.evaluate(GOOD, on_progress=lambda text: None, cancel=CancelToken())
    assert (sandbox.asked["platform"], sandbox.asked["device"]) == ("cpu", 3)
    assert evaluation.provenance["device"]["index"] == 3


def test_only_baselines_that_the_platform_has_are_asked_for(tmp_path):
    settings = load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path)
    for baselines in (("eager", "compile"), ("eager",)):
        sandbox = Answering()
        context = EvaluationContext(Task("op", OP), CpuPlatform(baselines=baselines), sandbox, settings)
        evaluation = context.evaluate(GOOD, on_progress=lambda text: None, cancel=CancelToken())
        assert sandbox.asked["baselines"] == list(baselines)
        assert evaluation.provenance["settings"]["baselines"] == baselines


def test_those_who_share_are_in_together_and_not_with_one_who_measures(tmp_path):
    lock = tmp_path / "lock"
    with hold_device([lock], on_wait=no_wait, shared=True), hold_device([lock], on_wait=no_wait, shared=True):
        called_off = threading.Event()
        called_off.set()
        with pytest.raises(WaitCancelled), hold_device([lock], on_wait=lambda: None, cancel=called_off):
            pass
    with (
        hold_device([lock], on_wait=no_wait),
        pytest.raises(WaitCancelled),
        hold_device([lock], on_wait=lambda: None, cancel=called_off, shared=True),
    ):
        pass


def test_who_measures_is_not_passed_by_for_ever_by_those_who_share(tmp_path):
    lock, over, came = tmp_path / "lock", threading.Event(), []

    def build() -> None:
        while not over.is_set():
            with hold_device([lock], on_wait=lambda: None, shared=True):
                time.sleep(0.3)

    builders = [threading.Thread(target=build) for _ in range(3)]
    for number, builder in enumerate(builders):
        builder.start()
        time.sleep(0.1 * number)  # so that they overlap
    began = time.monotonic()
    with hold_device([lock], on_wait=lambda: None):
        came.append(time.monotonic() - began)
    over.set()
    for builder in builders:
        builder.join()
    assert came[0] < 3.0


def test_only_one_of_many_is_in_at_a_time(tmp_path):
    inside, most = [0], [0]
    guard = threading.Lock()

    def work():
        for _ in range(3):
            with hold_device([tmp_path / "lock"], on_wait=lambda: None):
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.01)
                with guard:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_lock_file_that_is_deleted_meanwhile_lets_nobody_in_twice(tmp_path):
    with hold_device([tmp_path / "lock"], on_wait=no_wait):
        (tmp_path / "lock").unlink()
    with hold_device([tmp_path / "lock"], on_wait=no_wait):
        assert (tmp_path / "lock").exists()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), hold_device([tmp_path / "lock"], on_wait=lambda: None):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_other_users_can_take_part(tmp_path):
    old = os.umask(0o077)
    try:
        with hold_device([tmp_path / "lock"], on_wait=no_wait):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644


# Several resources


def free(folder, *resources):
    """Whether these resources can be had at once."""
    cancel = threading.Event()
    cancel.set()
    try:
        with hold_device(lock_paths(folder, resources), on_wait=lambda: None, cancel=cancel):
            return True
    except WaitCancelled:
        return False


def test_platforms_that_name_the_same_resource_exclude_each_other(tmp_path):
    child = holder(60, *lock_paths(tmp_path, ["gpu-0", "host-cores-0"]))
    assert not free(tmp_path, "host-cores-0")
    assert not free(tmp_path, "gpu-0")
    assert not free(tmp_path, "gpu-1", "host-cores-0")
    assert free(tmp_path, "gpu-1")
    assert free(tmp_path, "host-cores-1", "gpu-1")
    assert free(tmp_path)
    child.kill()
    wait_for(child)
    assert free(tmp_path, "gpu-0", "host-cores-0")


def test_who_waits_for_one_resource_gives_the_others_back_when_called_off(tmp_path):
    child = holder(60, *lock_paths(tmp_path, ["host-cores-0"]))
    assert not free(tmp_path, "gpu-0", "host-cores-0")
    assert free(tmp_path, "gpu-0")
    child.kill()
    wait_for(child)


IN_TURN = """
import random, sys, time
from pathlib import Path
from service.device_lock import hold_device, lock_paths
folder, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
for _ in range(6):
    wanted = draw.sample(["a", "b", "c"], draw.randint(1, 3))
    with hold_device(lock_paths(folder, wanted)[:: draw.choice((1, -1))], on_wait=lambda: None):
        began = time.monotonic()
        time.sleep(0.02)
        for name in wanted:
            print(name, began, time.monotonic(), flush=True)
"""


def test_processes_that_want_some_of_three_resources_never_share_one_nor_wait_for_ever(tmp_path):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", IN_TURN, str(tmp_path), str(seed)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for seed in range(2)
    ]
    spans = {}
    for child in children:
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        for line in out.splitlines():
            name, began, ended = line.split()
            spans.setdefault(name, []).append((float(began), float(ended)))
    assert set(spans) == {"a", "b", "c"}
    for held in spans.values():
        held.sort()
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(held))


def test_each_device_of_a_platform_has_locks_of_its_own(tmp_path):
    platform = load_platform("cpu")
    first, second = (lock_paths(tmp_path, platform.exclusive_resources(index)) for index in range(2))
    assert not set(first) & set(second)
    settings = load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path, device=1)
    assert EvaluationContext(Task("op", OP), platform, Answering(), settings).locks == second


# Who is alive


def test_this_process_is_alive():
    assert not is_dead(this_process())


def test_a_process_that_ended_is_dead_and_so_is_one_whose_pid_was_given_away():
    code = (
        "from service.jobs.liveness import this_process; o = this_process(); print(o.host, o.pid, o.started); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    host, pid, started = child.stdout.readline().split()
    owner = Owner(host, int(pid), started)
    assert not is_dead(owner)
    child.communicate("\n")
    assert is_dead(owner)
    me = this_process()
    own_pid, ticks, rest = me.started.split(":", 2)
    assert is_dead(Owner(me.host, me.pid, f"{own_pid}:{int(ticks) - 1}:{rest}"))


def test_a_reboot_kills_all_and_other_hosts_are_not_judged():
    me = this_process()
    pid, ticks, _, namespace = me.started.split(":")
    assert is_dead(Owner(me.host, me.pid, f"{pid}:{ticks}:another-boot:{namespace}"))
    assert not is_dead(Owner("elsewhere", me.pid, f"{pid}:{ticks}:another-boot:{namespace}"))
    assert not is_dead(Owner(me.host, 1, "unreadable"))


# Stopping


def test_the_first_reason_counts():
    cancel = CancelToken()
    assert not cancel.requested()
    cancel.request("cancelled")
    cancel.request("interrupted")
    assert (cancel.requested(), cancel.reason) == (True, "cancelled")


def test_a_stop_asked_for_elsewhere_is_noticed():
    cancel = CancelToken()
    answers = iter([False, False, True])
    with cancel_when(lambda: next(answers), cancel, "cancelled", poll_s=0.01):
        assert cancel.event.wait(5)
    assert cancel.reason == "cancelled"


def test_without_a_request_the_watcher_ends_with_the_block():
    cancel = CancelToken()
    with cancel_when(lambda: False, cancel, "cancelled", poll_s=0.01):
        pass
    assert not cancel.requested()
    assert not any(thread.name == "cancel-when" for thread in threading.enumerate())

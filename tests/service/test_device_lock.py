"""One at a time on a device: others wait and say so, and the dead hold nothing."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from db.records import Owner
from evaluator.platforms import load_platform
from sandbox.base import Completed
from service.cancellation import CancelToken, cancel_when
from service.device_lock import WaitCancelled, device_lock_path, hold_device
from service.evaluation_context import WAITING, EvaluationContext
from service.jobs.liveness import is_dead, this_process
from service.jobs.persistence import outcome_of
from service.settings import load_settings
from tasks.task import Task
from tests.support.commands import GOOD, OP, ROOT

HOLD = """
import sys, time
from pathlib import Path
from service.device_lock import hold_device
with hold_device(Path(sys.argv[1]), on_wait=lambda: None):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(lock, seconds):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock), str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True
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
        with hold_device(tmp_path / "lock", on_wait=no_wait):
            pass


def test_who_comes_second_is_told_once_and_waits(tmp_path):
    child = holder(tmp_path / "lock", 0.8)
    told = []
    with hold_device(tmp_path / "lock", on_wait=lambda: told.append(1)):
        assert child.poll() is not None or told == [1]
    assert told == [1]
    wait_for(child)


def test_kill_9_frees_the_device(tmp_path):
    child = holder(tmp_path / "lock", 60)
    os.kill(child.pid, signal.SIGKILL)
    begun = time.monotonic()
    with hold_device(tmp_path / "lock", on_wait=lambda: None):
        assert time.monotonic() - begun < 5
    wait_for(child)


def test_waiting_can_be_called_off(tmp_path):
    child = holder(tmp_path / "lock", 60)
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(WaitCancelled), hold_device(tmp_path / "lock", on_wait=lambda: None, cancel=cancel):
        pass
    child.kill()
    wait_for(child)


class Answering:
    """A sandbox in which every command takes as long as it takes to say so."""

    name = "answering"
    promises = frozenset()
    took_s = 0.2

    def run(self, command, **_):
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
    child = holder(device_lock_path(tmp_path, "cpu"), 1.5)
    told, begun = [], time.monotonic()
    evaluation = context.evaluate(GOOD, on_progress=told.append, cancel=CancelToken())
    elapsed_s = time.monotonic() - begun
    wait_for(child)
    assert told == [WAITING]
    outcome = outcome_of(evaluation, platform, candidate_hash="c", evaluation_id="e")
    assert Answering.took_s <= outcome.took_s < elapsed_s - 0.5


def test_those_who_share_are_in_together_and_not_with_one_who_measures(tmp_path):
    lock = tmp_path / "lock"
    with hold_device(lock, on_wait=no_wait, shared=True), hold_device(lock, on_wait=no_wait, shared=True):
        called_off = threading.Event()
        called_off.set()
        with pytest.raises(WaitCancelled), hold_device(lock, on_wait=lambda: None, cancel=called_off):
            pass
    with (
        hold_device(lock, on_wait=no_wait),
        pytest.raises(WaitCancelled),
        hold_device(lock, on_wait=lambda: None, cancel=called_off, shared=True),
    ):
        pass


def test_who_measures_is_not_passed_by_for_ever_by_those_who_share(tmp_path):
    lock, over, came = tmp_path / "lock", threading.Event(), []

    def build() -> None:
        while not over.is_set():
            with hold_device(lock, on_wait=lambda: None, shared=True):
                time.sleep(0.3)

    builders = [threading.Thread(target=build) for _ in range(3)]
    for number, builder in enumerate(builders):
        builder.start()
        time.sleep(0.1 * number)  # so that they overlap
    began = time.monotonic()
    with hold_device(lock, on_wait=lambda: None):
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
            with hold_device(tmp_path / "lock", on_wait=lambda: None):
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
    with hold_device(tmp_path / "lock", on_wait=no_wait):
        (tmp_path / "lock").unlink()
    with hold_device(tmp_path / "lock", on_wait=no_wait):
        assert (tmp_path / "lock").exists()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), hold_device(tmp_path / "lock", on_wait=lambda: None):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_other_users_can_take_part(tmp_path):
    old = os.umask(0o077)
    try:
        with hold_device(tmp_path / "lock", on_wait=no_wait):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644


def test_each_platform_has_a_lock_of_its_own(tmp_path):
    assert device_lock_path(tmp_path, "cpu") != device_lock_path(tmp_path, "cuda")


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

"""Owners of containers: the living are told from the dead, and nobody is taken for somebody else."""

import dataclasses
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.owner import ProcessIdentity, _start_time, is_gone, this_process


def test_a_living_process_is_not_gone() -> None:
    assert not is_gone(this_process(), container_runs=True)
    assert not is_gone(this_process(), container_runs=False)


def test_a_dead_process_is_gone() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert is_gone(dataclasses.replace(this_process(), pid=child.pid), container_runs=True)


def test_a_zombie_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        owner = dataclasses.replace(this_process(), pid=child.pid, started=_start_time(child.pid) or 0)
        assert not is_gone(owner, container_runs=True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(owner, container_runs=True)


def test_a_later_process_with_the_same_id_is_not_the_owner() -> None:
    assert is_gone(dataclasses.replace(this_process(), started=1), container_runs=True)


def test_the_living_of_another_pid_namespace_are_left_alone() -> None:
    assert not is_gone(dataclasses.replace(this_process(), namespace="1", pid=2**22 + 1), container_runs=True)


@pytest.mark.parametrize("runs", [True, False])
def test_of_another_boot_only_stopped_containers_are_orphans(runs: bool) -> None:
    assert is_gone(dataclasses.replace(this_process(), boot="another"), container_runs=runs) is not runs


def test_a_label_gives_the_owner_back() -> None:
    assert ProcessIdentity.from_label(this_process().to_label()) == this_process()
    assert this_process().pid == os.getpid()


@given(st.text())
def test_any_other_label_names_nobody_or_reads_back(label: str) -> None:
    owner = ProcessIdentity.from_label(label)
    assert owner is None or ProcessIdentity.from_label(owner.to_label()) == owner

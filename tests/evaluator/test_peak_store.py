"""What is kept of a device's peak rates between evaluations."""

import json
import math
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.peak_store import PeakStore
from evaluator.platforms import Device, load_platform
from evaluator.referee.platforms.cpu.peaks import ENOUGH
from sandbox.base import Sandbox
from tasks.build import task_from_source

DEVICE = Device("cpu", "a processor, 2 cores", {"cores": "2"}, 0)
SANDBOX = {"sandbox": "process"}


def test_the_highest_rate_stays_and_measurements_are_counted(tmp_path: Path) -> None:
    store = PeakStore(tmp_path / "peaks")
    assert store.get(DEVICE, SANDBOX) == {}
    for rate in (5e9, 7e9, 6e9):
        store.add(DEVICE, SANDBOX, {"read/1024": rate})
    store.add(DEVICE, SANDBOX, {"flops/float32": 1e11})
    assert store.get(DEVICE, SANDBOX) == {"read/1024": (7e9, 3), "flops/float32": (1e11, 1)}
    [file] = (tmp_path / "peaks").iterdir()
    content = json.loads(file.read_text())
    assert content["device"] == DEVICE.describe()
    assert set(content["points"]["read/1024"]) == {"rate", "times", "raised_on", "measured_on"}


def test_another_device_or_sandbox_has_its_own(tmp_path: Path) -> None:
    store = PeakStore(tmp_path)
    store.add(DEVICE, SANDBOX, {"read/1024": 5e9})
    assert store.get(Device("cpu", "a processor, 1 core", {"cores": "1"}, 0), SANDBOX) == {}
    assert store.get(DEVICE, {"sandbox": "docker"}) == {}


@pytest.mark.parametrize("rate", [0, -1.0, math.inf, math.nan, True, "5e9", None])
def test_what_is_no_rate_is_not_kept(tmp_path: Path, rate: object) -> None:
    store = PeakStore(tmp_path)
    store.add(DEVICE, SANDBOX, {"read/1024": rate})  # type: ignore[dict-item]
    assert store.get(DEVICE, SANDBOX) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"points": 3}', '{"points": {"read/1": {"rate": 1}}}'])
def test_a_file_that_cannot_be_read_is_as_if_it_were_not_there(tmp_path: Path, content: str) -> None:
    store = PeakStore(tmp_path)
    store.add(DEVICE, SANDBOX, {"read/1024": 5e9})
    [file] = tmp_path.iterdir()
    file.write_text(content)
    assert store.get(DEVICE, SANDBOX) == {}
    store.add(DEVICE, SANDBOX, {"read/1024": 4e9})
    assert store.get(DEVICE, SANDBOX) == {"read/1024": (4e9, 1)}


def test_a_folder_that_cannot_be_written_costs_a_measurement_and_no_evaluation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    PeakStore(tmp_path / "file").add(DEVICE, SANDBOX, {"read/1024": 5e9})


OP = """
import torch


class Model{new}(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""
INPUTS = """

def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""


@pytest.mark.docker
def test_an_evaluation_measures_what_too_few_have_measured(shared_docker_sandbox: Sandbox, tmp_path: Path) -> None:
    task, platform = task_from_source(OP.format(new="") + INPUTS, name="op"), load_platform("cpu")
    store, device = PeakStore(tmp_path), platform.device(0)
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",))
    described = shared_docker_sandbox.describe()

    def kept_after_an_evaluation() -> dict[str, tuple[float, int]]:
        found = evaluate(
            task, OP.format(new="New"), sandbox=shared_docker_sandbox, platform=platform, effort=effort, peaks=store
        )
        assert found.passed, found.message
        assert found.profile["peak_read_gb_per_s"] > 0
        return store.get(device, described)

    first = kept_after_an_evaluation()
    assert {name.partition("/")[0] for name in first} == {"read", "write", "copy", "flops"}
    assert {times for _, times in first.values()} == {1}
    much = 1e15  # so that nothing seems to beat it, and nothing is measured for that
    store.add(device, described, dict.fromkeys(first, much))
    store.add(device, described, dict.fromkeys(first, much))
    assert kept_after_an_evaluation() == dict.fromkeys(first, (much, ENOUGH)), "that is enough"

"""Platforms for GPUs on a device that is there: what is asked of the referee and the sandbox, and what is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluator.build_cache import BuildCache, candidate_key
from evaluator.evaluate import Effort
from evaluator.platforms import Platform, load_platform, proves
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.cuda.platform import CudaPlatform
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.platforms.gpu.platform import GpuPlatform, on_device
from evaluator.platforms.triton.platform import TritonPlatform
from evaluator.profile import GPU_BUDGET_S, SANITIZER_BUDGET_S, SANITIZES_ON, profile_candidate
from evaluator.referee.protocol.gpu_checks import gpu_of, part_on_gpu
from evaluator.referee.protocol.nvml import Gpu
from sandbox.base import Command, Sandbox
from tasks.build import task_from_source
from tests.platforms.kits import OP
from tests.support.recording_sandbox import RecordingSandbox

GPU = Gpu(1, "GPU-aaaa", "NVIDIA H200", "9.0", 141 << 30, "580.65.06", minor=1, max_clock_mhz=1980, persistent=True)
SCREENED: list[Platform] = [CudaPlatform(), TritonPlatform()]


def look(index: int) -> Gpu | None:
    return GPU if index == GPU.index else None


@pytest.mark.parametrize("screened", SCREENED, ids=lambda each: each.name)
def test_a_verdict_is_timed_where_a_gpu_is_there_for_the_device_that_was_asked_for(screened: Platform) -> None:
    there, absent = on_device(screened, 1, look=look), on_device(screened, 0, look=look)
    assert absent is screened
    assert (absent.timed, absent.part, absent.baselines) == ("nothing", screened.name, ())
    assert (there.timed, there.baselines, there.name) == (
        "wall", ("eager", "compile", "compile-max-autotune"), screened.name
    )  # fmt: skip
    assert gpu_of(there.part) == (screened.name, "GPU-aaaa")
    assert Effort().on(there).baselines == ("eager", "compile")
    assert proves(there, 1) == "timed on GPU NVIDIA H200"
    assert proves(absent) == "screened, not timed"


@pytest.mark.parametrize("name", ["cuda", "triton"])
def test_a_host_without_a_gpu_screens(name: str) -> None:
    if gpu_at(0) is not None:
        pytest.skip("there is a GPU here")
    platform = load_platform(name)
    assert (platform.timed, platform.part) == ("nothing", name)
    assert platform.exclusive_resources(0) == ()
    assert (platform.sandbox_devices(0).nodes, platform.sandbox_devices(0).gpus) == ((), ())


def test_the_device_is_named_and_one_that_is_not_there_is_an_error() -> None:
    platform = on_device(CudaPlatform(), 1, look=look)
    device = platform.device(1)
    assert (device.platform, device.name, device.index) == ("cuda", "NVIDIA H200", 1)
    assert device.facts["compute capability"] == "9.0"
    assert "580" not in device.describe()  # times of one class are compared whatever the driver
    with pytest.raises(OSError, match="GPU 0"):
        platform.device(0)
    assert "are timed against eager" in platform.device_text(device, {})
    assert platform.provenance(1)["gpu_driver"] == "580.65.06"


def test_whoever_measures_on_a_gpu_has_it_alone_in_any_language() -> None:
    held = [on_device(each, 1, look=look).exclusive_resources(1) for each in SCREENED]
    assert held == [("gpu-1", *CpuPlatform().exclusive_resources(0))] * 2


def test_a_sandbox_opens_this_gpu_and_no_other() -> None:
    opened = on_device(TritonPlatform(), 1, look=look).sandbox_devices(1)
    assert opened.nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1")
    assert opened.gpus == ("GPU-aaaa",)


def test_prompts_and_forms_are_those_of_screening_but_for_how_candidates_are_judged() -> None:
    for screened in SCREENED:
        there = on_device(screened, 1, look=look)
        assert isinstance(there, GpuPlatform)
        assert replace(there.prompts(), rules="rules.md") == screened.prompts()
        rules = (there.prompts().folder / there.prompts().rules).read_text()
        assert "no GPU" not in rules and "screened" not in rules and "timed" in rules
        assert there.language == screened.language
        assert there.image().tag == screened.image().tag


def test_a_part_without_a_gpu_is_the_language() -> None:
    assert gpu_of("cuda") == ("cuda", "")
    assert gpu_of(part_on_gpu("triton", "GPU-b")) == ("triton", "GPU-b")


PROFILE: dict[str, Any] = {
    "handover_ms": 0.11,
    "gpu": {
        "clock_mhz": [1755, 1980],
        "temperature_c": [41, 41],
        "clocks_held_by": ["power cap"],
        "others": [4242],
    },
    "kernels_claimed": [["softmax_kernel", 0.9], ["elementwise", 0.1]],
}


def profile_command(platform: Platform, *, sanitize: bool, cache: BuildCache | None = None) -> tuple[Command, Any]:
    recording = RecordingSandbox(b'{"absent": {}, "cost_s": {}}', exit_code=0)
    sandbox: Sandbox = recording  # type: ignore[assignment]
    task = task_from_source(OP, name="op")
    found = profile_candidate(
        task, "source", sandbox=sandbox, platform=platform, device=1, sanitize=sanitize, cache=cache
    )
    [command] = recording.commands
    return command, found


@pytest.mark.parametrize("sanitize", [False, True])
def test_a_profile_on_a_gpu_has_time_for_what_watches_a_call(sanitize: bool, tmp_path: Path) -> None:
    cache, platform = BuildCache(tmp_path), on_device(CudaPlatform(), 1, look=look)
    cache.put(
        candidate_key(task_from_source(OP, name="op"), "source", {"name": "recording"}, platform.device(1)), "AA=="
    )
    command, found = profile_command(platform, sanitize=sanitize, cache=cache)
    told = json.loads(command.stdin)
    assert told.get("sanitize", False) is sanitize and "sanitizer" not in found["absent"]
    assert told["build_cache"] == "AA==", "it is not built again"
    assert told["measure_budget_s"] == GPU_BUDGET_S + sanitize * SANITIZER_BUDGET_S < command.limits.wall_s
    assert command.loopback and command.devices.gpus == ("GPU-aaaa",)


def test_where_nothing_runs_on_a_gpu_the_sanitizer_is_absent() -> None:
    command, found = profile_command(CudaPlatform(), sanitize=True)
    assert found["absent"] == {"sanitizer": SANITIZES_ON}
    assert not command.loopback and "sanitize" not in json.loads(command.stdin)


def test_doctor_is_told_what_profiles_are_made_by() -> None:
    programs = {each.name: each for each in on_device(CudaPlatform(), 1, look=look).host_programs()}
    assert {"g++", "nvcc", "ncu", "cuobjdump", "compute-sanitizer"} == programs.keys()
    assert "Nsight Compute" in programs["ncu"].remedy and not programs["ncu"].required


@pytest.mark.parametrize("there", [True, False])
def test_a_profile_from_a_gpu_reads_alike_on_hosts_with_one_and_without(there: bool) -> None:
    platform = on_device(CudaPlatform(), 1 if there else 0, look=look)
    assert platform.profile_text(PROFILE).splitlines() == [
        "a call that does nothing takes: 0.11 ms",
        "clock: 1755 to 1980 MHz",
        "temperature: 41 C",
        "clocks were held by: power cap",
        "other processes computed on it: [4242]",
        "kernel (claimed): 90% softmax_kernel",
        "kernel (claimed): 10% elementwise",
    ]
    screened = platform.profile_text({"screening": {"kernels": ["k"]}})
    assert screened.startswith("not timed: screened without a GPU")

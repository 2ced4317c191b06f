"""Whose kernels ran, and what the referee sees of the device meanwhile."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaluator.referee.platforms.gpu.kernels import is_library, own_share, read_kernels, shares
from evaluator.referee.platforms.gpu.platform import GpuPlatform
from evaluator.referee.platforms.gpu.watch import GpuMeter, Seen, facts_of
from evaluator.referee.platforms.load import load_platform
from evaluator.referee.platforms.screened.platform import ScreenedPlatform
from evaluator.referee.protocol.device_memory import output_offsets
from evaluator.referee.protocol.nvml import State
from evaluator.referee.protocol.tensors import TensorRow
from evaluator.referee.runner.platforms.on_gpu.platform import architecture

ROOT = Path(__file__).parents[5]
LIBRARY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)",
    "ampere_sgemm_128x64_tn",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas",
    "cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
    "void cudnn::ops::nchwToNhwcKernel<float>",
    "void cub::DeviceReduceKernel<Policy>",
    "Memcpy DtoD (Device -> Device)",
    "Memset (Device)",
)
OWN = (
    "scaled_relu_kernel(float const*, float const*, float*, int)",
    "triton_poi_fused_add_relu_0",
    "softmax",
    "my_gemm",
)


@pytest.mark.parametrize("name", LIBRARY)
def test_kernels_of_libraries_and_copies_are_no_candidates(name: str) -> None:
    assert is_library(name)


@pytest.mark.parametrize("name", OWN)
def test_kernels_of_other_names_are_the_candidates(name: str) -> None:
    assert not is_library(name)


def test_the_share_of_own_kernels_is_that_of_their_time() -> None:
    told = [["softmax", 30.0], [LIBRARY[0], 60.0], ["softmax", 10.0]]
    kernels = read_kernels(told)
    assert kernels == [(LIBRARY[0], 60.0), ("softmax", 40.0)]
    assert own_share(kernels) == 0.4
    assert shares(kernels) == [[LIBRARY[0], 0.6], ["softmax", 0.4]]
    assert own_share([]) is None and shares([]) == []


@pytest.mark.parametrize(
    "told", [None, "x", [["k"]], [["k", -1.0]], [["k", float("nan")]], [["k", "1"]], [1], [["k", 1e30]]]
)
def test_a_forged_list_of_kernels_is_refused(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_kernels(told)


def test_the_name_of_a_kernel_is_printable_and_bounded() -> None:
    [(name, _)] = read_kernels([["k\n\x1b[31m" + "x" * 1000, 1.0]])
    assert name.isprintable() and len(name) <= 120


def meter(looks: Iterator[Seen | None], *, before: tuple[int, ...] = (), ours: tuple[int, ...] = ()) -> GpuMeter:
    nothing: Any = lambda: None  # noqa: E731
    host = SimpleNamespace(begin=nothing, end=nothing, is_noisy=lambda: False, facts=lambda: {"others_cores_busy": 0.0})
    return GpuMeter(cast("Any", host), lambda: next(looks), before, lambda: list(ours))


QUIET = Seen(State(1980, 3201, 40, 120.0, 0x4, 0.2), (7,))
HOT = Seen(State(1200, 3201, 88, 690.0, 0x24, 0.9), (7,))


def watched(*looks: Seen | None, before: tuple[int, ...] = (), ours: tuple[int, ...] = (7,)) -> GpuMeter:
    made = meter(iter(looks), before=before, ours=ours)
    made.begin()
    assert made.running
    made.end()
    assert not made.running
    return made


def test_a_quiet_device_makes_no_noise_even_at_its_power_limit() -> None:
    seen = watched(QUIET, QUIET)
    assert not seen.is_noisy()
    assert seen.facts() == {
        "others_cores_busy": 0.0,
        "gpu": {
            "looks": 2,
            "clock_mhz": [1980, 1980],
            "memory_clock_mhz": [3201, 3201],
            "temperature_c": [40, 40],
            "power_w": [120.0, 120.0],
            "clocks_held_by": ["power cap"],
            "others": [],
        },
    }


def test_heat_and_other_processes_make_figures_noisy() -> None:
    hot = watched(QUIET, HOT)
    assert hot.is_noisy()
    assert hot.facts()["gpu"]["clock_mhz"] == [1200, 1980]
    shared = watched(QUIET, Seen(QUIET.state, (7, 4242)))
    assert shared.is_noisy() and shared.facts()["gpu"]["others"] == [4242]


def test_what_is_not_told_is_told_as_unknown() -> None:
    assert facts_of([], [])["others"] is None
    seen = watched(None, None)
    assert not seen.is_noisy()
    assert seen.facts()["gpu"]["clock_mhz"] is None
    assert watched(Seen(State(), None), None).facts()["gpu"]["others"] is None


def test_the_referee_has_a_part_that_screens_and_one_for_a_gpu() -> None:
    for name in ("cuda", "triton"):
        there, screening = load_platform(f"{name}@GPU-a", 3), load_platform(name, 3)
        assert isinstance(there, GpuPlatform) and isinstance(screening, ScreenedPlatform)
        assert (there.name, there.timed, there.device) == (name, "wall", 3)
        assert screening.timed == "nothing"
    for forged in ("cpu@GPU-a", "cuda-gpu", "@GPU-a"):
        with pytest.raises(ValueError, match="unknown"):
            load_platform(forged, 0)


def test_runners_on_a_gpu_see_no_other_one_and_find_triton() -> None:
    script = (
        "import json, os, sys\n"
        "sys.modules['triton'] = None\n"
        "from evaluator.referee.runner.platforms.load import load_imports\n"
        "load_imports('triton@GPU-a').before_torch()\n"
        "print(json.dumps([os.environ['CUDA_VISIBLE_DEVICES'], 'triton' in sys.modules, 'torch' in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["GPU-a", False, False]


def test_extensions_are_compiled_for_this_gpu_with_what_is_its_own() -> None:
    assert [architecture(8, 0), architecture(9, 0), architecture(10, 0)] == ["8.0", "9.0a", "10.0a"]


def test_outputs_are_put_apart_and_aligned_for_any_access() -> None:
    rows = [TensorRow(0, "float32", shape, (1,)) for shape in ((1,), (64,), (0,), (100,))]
    offsets, needed = output_offsets(rows)
    assert all(offset % 256 == 0 for offset in offsets)
    assert all(
        after - at >= row.span_bytes for at, after, row in zip(offsets, [*offsets[1:], needed], rows, strict=True)
    )

"""The emulation's wavefronts of 64 lanes: what shuffles and votes give, and what is told of lanes that do not come."""

import subprocess
from pathlib import Path

import pytest

from evaluator.referee.runner.platforms.hip.words import HIP
from tests.platforms.cuda.programs import Ran, build, ran, run

pytestmark = pytest.mark.xdist_group("cuda_programs")  # they share the emulation's libraries
ORDERS = ("forward", "backward", "random:3")


def one_kernel(body: str, *, threads: int = 128, check: str = "") -> str:
    """A program that runs a kernel on one block, of which `y` has a number a thread."""
    check = check or f'for (int i = 0; i < {threads}; i++) printf("%g ", y[i]);'
    return f"""#include <hip/hip_runtime.h>
#line 1 "kernel.hip"
__global__ void k(float* y) {{ {body} }}
int run() {{
    float* y = nullptr;
    if (hipMalloc(&y, 4096) != hipSuccess) return 1;
    hipLaunchKernelGGL(k, dim3(1), dim3({threads}), 0, 0, y);
    {check}
    return 0;
}}
"""


def ran_hip(text: str, folder: Path, kind: str = "plain") -> Ran:
    return ran(text, folder, kind, dialect=HIP)


def test_shuffles_and_votes_are_of_64_lanes_in_every_order(tmp_path: Path) -> None:
    body = """
    const int t = threadIdx.x, lane = t % 64;
    bool ok = warpSize == 64 && __lane_id() == unsigned(lane) && __activemask() == ~0ull;
    ok = ok && __shfl(t, 40) == t - lane + 40 && __shfl(t, 3, 32) == t / 32 * 32 + 3;
    ok = ok && __shfl_xor(t, 32) == (t ^ 32) && __shfl_up(t, 1) == (lane ? t - 1 : t);
    ok = ok && __shfl_down(t, 1) == (lane < 63 ? t + 1 : t) && __shfl_down(t, 1, 8) == (lane % 8 < 7 ? t + 1 : t);
    ok = ok && __ballot(lane & 1) == 0xaaaaaaaaaaaaaaaaull && __any(lane == 63) && !__all(lane < 63) && __all(t >= 0);
    ok = ok && __shfl_sync(~0ull, 1.5, 0) == 1.5 && __syncthreads_count(t < 70) == 70;
    y[t] = ok;"""
    check = 'int all = 0; for (int i = 0; i < 128; i++) all += y[i] == 1; printf("%d", all);'
    program = build(one_kernel(body, check=check), tmp_path, dialect=HIP)
    assert [run(program, order).text for order in ORDERS] == ["128"] * 3


def test_what_a_lane_gives_that_takes_no_part_is_nan(tmp_path: Path) -> None:
    body = "if (threadIdx.x < 16) y[threadIdx.x] = __shfl(1.0f, threadIdx.x % 2 ? 20 : 3); else y[threadIdx.x] = 2;"
    first = ran_hip(one_kernel(body, threads=64), tmp_path).text.split()[:4]
    assert first[0] == first[2] == "1" and all(each.endswith("nan") for each in (first[1], first[3]))


def test_lanes_that_have_left_or_wait_at_a_barrier_are_not_waited_for(tmp_path: Path) -> None:
    body = """
    if (threadIdx.x >= 100) return;
    y[threadIdx.x] = __popcll(__ballot(1));
    if (threadIdx.x % 64 < 9) y[threadIdx.x] += __popcll(__ballot(1));
    __syncthreads();"""
    text = ran_hip(one_kernel(body, check='printf("%g %g %g %g", y[0], y[63], y[64], y[99]);'), tmp_path).text
    assert text == "73 64 45 36"


def test_a_wavefront_that_the_block_does_not_fill_has_fewer_lanes(tmp_path: Path) -> None:
    assert ran_hip(one_kernel("y[threadIdx.x] = __popcll(__ballot(1));", threads=70), tmp_path).text.split()[63:66] == [
        "64",
        "6",
        "6",
    ]


def test_lanes_at_different_operations_are_told_with_their_lines(tmp_path: Path) -> None:
    found = ran_hip(one_kernel("if (threadIdx.x < 8)\n__shfl(1, 0);\nelse\n__ballot(1);", threads=64), tmp_path)
    assert found.status == 66 and "wavefront divergence: thread (0,0,0) waits at a shuffle, line 2" in found.text
    assert "thread (8,0,0) of the same wavefront at a vote, line 4" in found.text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y[0] = __shfl_sync(1ull, 1, 0);", "thread (1,0,0) (lane 1) calls it with a mask that leaves itself out"),
        ("y[0] = __shfl(1, 0, 48);", "has the width 48"),
    ],
)
def test_what_a_shuffle_cannot_be_given_is_told(tmp_path: Path, body: str, says: str) -> None:
    found = ran_hip(one_kernel(body), tmp_path)
    assert found.status == 66 and says in found.text


def test_a_shuffle_orders_no_memory(tmp_path: Path) -> None:
    body = "__shared__ float s[64]; s[threadIdx.x] = 1; __shfl(1, 0); y[threadIdx.x] = s[(threadIdx.x + 1) % 64];"
    assert ran_hip(one_kernel(body, threads=64), tmp_path, "thread").status == 77
    assert (
        ran_hip(one_kernel(body.replace("__shfl(1, 0)", "__syncthreads()"), threads=64), tmp_path, "thread").status == 0
    )


def test_vectors_have_operators_and_a_kernels_own_go_before_them(tmp_path: Path) -> None:
    text = one_kernel(
        "float4 a = float4(1, 2, 3, 4); a = 2.0f * a + make_float4(1, 1, 1, 1); a /= 2.0f; int2 b = make_int2(7, 9);"
        "b = b - make_int2(1, 2); y[0] = a.w + b.y; float2 c = make_float2(1, 2); y[1] = (c + c).x;",
        threads=1,
        check='printf("%g %g", y[0], y[1]);',
    )
    own = "__device__ float2 operator+(float2 a, float2 b) { return make_float2(42, 0); }\n__global__"
    assert ran_hip(text.replace("__global__", own, 1), tmp_path).text == "11.5 42"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("__shfl_sync(0xffffffffu, 1, 0)", "a mask of the lanes of a wavefront has 64 bits"),
        ("__reduce_add_sync(~0ull, 1)", "was not declared in this scope"),
    ],
)
def test_what_cuda_has_and_hip_has_not_does_not_compile(tmp_path: Path, call: str, says: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        ran_hip(one_kernel(f"y[0] = {call};"), tmp_path)
    assert says in caught.value.stderr

"""What the device allows: impossible is only what cannot be; what merely beats the reference's way is not accused."""

import time
from dataclasses import asdict, replace

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.protocol.peaks import Peaks, Traffic, peaks_of, points
from evaluator.referee.protocol.tensors import TensorRow
from evaluator.referee.runner.platforms.cpu import peaks as peak_measurement
from evaluator.referee.timing import roofline
from evaluator.referee.timing.roofline import Work
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

PEAKS = Peaks(
    60e9,
    50e9,
    rotating_read_bytes_per_s=120e9,
    rotating_written_bytes_per_s=100e9,
    rotating_copied_bytes_per_s=96e9,
    flops_per_s=200e9,
)
# 80 MB at a copy's rate and 20 MB that are read: 0.833 + 0.167 ms. From caches 1 ms of reading beside 0.8 of writing.
BYTES_BOUND = Work(nbytes=100_000_000, output_bytes=40_000_000, written=40_000_000, flops=0, dtypes=())
FLOPS_BOUND = Work(10_000_000, 4_000_000, 4_000_000, flops=2_000_000_000, dtypes=("float32",))  # 10 ms; 0.08 ms
EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=1, baselines=("eager",))


def judged(work: Work, candidate_ms: float, eager_ms: float, **others_ms: float) -> roofline.Found:
    times_ms = {"candidate": candidate_ms, "eager": eager_ms, **others_ms}
    return roofline.judge(work, PEAKS, {name: value / 1e3 for name, value in times_ms.items()})


def test_a_time_above_the_limit_is_a_share_of_it() -> None:
    found = judged(BYTES_BOUND, 2.0, 5.0)
    assert found.roofline == {"bound": "memory", "limit_ms": pytest.approx(1.0), "fraction": pytest.approx(0.5)}
    assert not found.impossible and not found.beyond
    assert "roofline_note" not in found.profile
    found = judged(FLOPS_BOUND, 20.0, 50.0)
    assert found.roofline is not None
    assert found.roofline["bound"] == "compute"


def test_what_beats_memory_is_held_to_the_caches() -> None:
    # 4 ms, from the caches 1 ms
    slow_memory = replace(PEAKS, rotating_read_bytes_per_s=30e9, rotating_copied_bytes_per_s=24e9)
    for candidate_ms, bound, limit_ms in ((8.0, "memory", 4.0), (2.0, "cache", 1.0)):
        found = roofline.judge(BYTES_BOUND, slow_memory, {"candidate": candidate_ms / 1e3, "eager": 0.009})
        assert found.roofline is not None
        assert (found.roofline["bound"], found.roofline["limit_ms"]) == (bound, pytest.approx(limit_ms))
        assert not found.beyond


def test_impossible_is_only_what_cannot_have_written_its_outputs() -> None:
    assert "write the outputs alone" in judged(BYTES_BOUND, 0.5, 5.0).impossible
    assert not judged(BYTES_BOUND, 0.6, 5.0).impossible
    assert not judged(FLOPS_BOUND, 0.1, 50.0).impossible


def test_faster_than_the_limit_is_beyond_it() -> None:
    found = judged(FLOPS_BOUND, 1.0, 50.0)
    assert found.beyond
    assert found.roofline is not None
    assert found.roofline["fraction"] == pytest.approx(10.0)
    assert not judged(BYTES_BOUND, 0.95, 5.0).beyond, "peaks are measured, too"


@pytest.mark.parametrize("times_ms", [{"eager_ms": 1.15}, {"eager_ms": 9.0, "compile": 1.15}])
def test_a_limit_that_a_baseline_all_but_breaks_is_none(times_ms: dict[str, float]) -> None:
    found = judged(BYTES_BOUND, 0.8, **times_ms)
    assert found.roofline is None
    assert not found.beyond
    assert "can be done with less" in found.profile["roofline_note"]


def test_a_limit_that_a_baseline_breaks_is_none_even_for_a_slow_candidate() -> None:
    assert judged(BYTES_BOUND, 3.0, 0.8).roofline is None
    assert judged(BYTES_BOUND, 3.0, 0.95).roofline is not None


def test_outputs_that_share_memory_are_written_once_and_strides_of_nothing_cost_nothing() -> None:
    def row(place: int, *shape: int, stride: tuple[int, ...]) -> TensorRow:
        return TensorRow(place, "float32", shape, stride)

    assert roofline._union([row(0, 10, stride=(1,)), row(20, 10, stride=(1,))]) == 60
    assert roofline._union([row(0, 10, stride=(1,)), row(0, 10, stride=(1,))]) == 40
    assert roofline._union([row(0, 1000, stride=(0,))]) == 4
    assert roofline._union([row(0, 2, stride=(1000,))]) == 8


@pytest.mark.parametrize("share_written", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_memory_moves_a_byte_at_a_time_so_the_limit_lies_between_reading_copying_and_writing(
    share_written: float,
) -> None:
    nbytes = 100_000_000
    traffic = Traffic(nbytes, int(share_written * nbytes), 0, 1 << 30)
    limit = roofline.time_limit(traffic, 0, PEAKS, cached=False)
    assert nbytes / 120e9 <= limit.seconds * (1 + 1e-9)
    assert limit.seconds <= nbytes / 96e9 * (1 + 1e-9)
    ends = {0.0: 120e9, 0.5: 96e9, 1.0: 100e9}
    if share_written in ends:
        assert limit.seconds == pytest.approx(nbytes / ends[share_written])


@pytest.mark.parametrize(
    ("nbytes", "written"), [(1000, 500), (1 << 22, 1 << 20), (1 << 40, 1 << 39), (1 << 22, 0), (1 << 22, 1 << 22)]
)
def test_bandwidths_are_plausible(nbytes: int, written: int) -> None:
    traffic = Traffic(nbytes, written, rotation_bytes=nbytes, most_bytes=1 << 26)
    found = peaks_of(peak_measurement.measure(points(traffic, ())), traffic, ())
    assert found.flops_per_s == 0.0
    assert all(1e8 < rate < 1e14 for name, rate in asdict(found).items() if name != "flops_per_s")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_peaks_are_measured_in_each_type(dtype: str) -> None:
    assert 1e7 < peak_measurement.measure([f"flops/{dtype}"])[f"flops/{dtype}"] < 1e16


def test_a_point_that_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match="got 'gather/4096'"):
        peak_measurement.measure(["gather/4096"])


def test_tasks_of_like_size_share_points_and_sizes_are_rounded_down() -> None:
    assert points(Traffic(3 << 20, 1 << 20, 1 << 24, 1 << 28), ["float32"]) == [
        f"read/{2 << 20}",
        f"write/{1 << 20}",
        f"read/{8 << 20}",
        f"write/{8 << 20}",
        f"copy/{8 << 20}",
        "flops/float32",
    ]
    assert points(Traffic(100, 0, 0, 1 << 28), []) == points(Traffic(900, 450, 0, 1 << 28), [])
    assert points(Traffic(1 << 40, 0, 0, 1 << 28), [])[0] == f"read/{1 << 27}", "no more than is too large for caches"


def test_a_measurement_ends_when_trying_again_changes_nothing_or_takes_long() -> None:
    calls: list[float] = []

    def work(seconds: float) -> None:
        calls.append(seconds)
        time.sleep(seconds)

    peak_measurement._best(lambda: work(0.03))
    assert len(calls) == 2
    calls.clear()
    peak_measurement._best(lambda: work(0.001))
    assert peak_measurement._TRIES_MIN < len(calls) <= peak_measurement._TRIES + 1


def test_the_text_says_why_no_limit_is_known_and_leaves_out_what_was_not_measured() -> None:
    profile = judged(BYTES_BOUND, 0.8, 0.9).profile | {
        "peak_gflop_per_s": None,
        "torch_operators_claimed": [["a", 1.0]],
    }
    text = load_platform("cpu").profile_text(profile)
    assert "can be done with less" in " ".join(text.split())
    assert "None" not in text
    assert max(map(len, text.splitlines())) <= 100


HEADER = "import torch\nimport torch.nn as nn\n"


def op(forward: str, inputs: str, init: str = "", arguments: str = "") -> str:
    return (
        HEADER
        + f"""
class Model(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        {init or "pass"}

    def forward(self, *x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{arguments}]
"""
    )


def judge_in_sandbox(source: str, candidate: str, sandbox: Sandbox) -> Evaluation:
    task = task_from_source(source, name="op")
    found = evaluate(task, HEADER + candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.PASSED, f"{found.code}: {found.message}\n{found.detail}"
    assert Evaluation.from_json(found.to_json()) == found
    return found


GATHER = op("return self.table(x[0])", "torch.randint(0, 200_000, (4096,))", "self.table = nn.Embedding(200_000, 128)")
GATHER_TOO = """
class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.table = nn.Embedding(200_000, 128)

    def forward(self, index):
        return self.table.weight.index_select(0, index)
"""
HALF_PRODUCT = op("return x[0] @ x[1]", "torch.randn(384, 384).bfloat16(), torch.randn(384, 384).bfloat16()")
HALF_PRODUCT_TOO = """
class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)
"""
DIAGONAL = op("return torch.diag(x[0]) @ x[1]", "torch.randn(1024), torch.randn(1024, 1024)")
DIAGONAL_WITHOUT_PRODUCT = """
class ModelNew(nn.Module):
    def forward(self, a, b):
        poison = (b.sum(0) + a.sum()) * 0  # NaN where any factor of the column is not finite, as the product has it
        return torch.addcmul(poison, a[:, None], b) if bool(torch.isfinite(poison).all()) else torch.diag(a) @ b
"""
VIEW = op("return x[0].transpose(0, 1)", "torch.randn(1024, 1024)")
VIEW_TOO = """
class ModelNew(nn.Module):
    def forward(self, x):
        return x.t()
"""


@pytest.mark.docker
@pytest.mark.exclusive
def test_a_gather_is_held_to_the_rows_that_it_reads(shared_docker_sandbox: Sandbox) -> None:
    found = judge_in_sandbox(GATHER, GATHER_TOO, shared_docker_sandbox)
    row, index, output = 128 * 4, 4096 * 8, 4096 * 128 * 4
    assert 4000 * row + index + output < found.profile["bytes_moved_min"] <= 4096 * row + index + output
    assert found.profile["flops"] == 0
    assert "beyond_roofline" not in found.tags


@pytest.mark.docker
@pytest.mark.exclusive
def test_a_peak_is_that_of_the_tasks_own_type(shared_docker_sandbox: Sandbox) -> None:
    found = judge_in_sandbox(HALF_PRODUCT, HALF_PRODUCT_TOO, shared_docker_sandbox)
    assert found.profile["flops"] == 2 * 384**3
    assert found.profile["peak_gflop_per_s"] > 0.8 * found.profile["achieved_gflop_per_s"]
    assert "beyond_roofline" not in found.tags


@pytest.mark.docker
@pytest.mark.exclusive
def test_a_way_that_needs_fewer_operations_is_no_fraud(shared_docker_sandbox: Sandbox) -> None:
    found = judge_in_sandbox(DIAGONAL, DIAGONAL_WITHOUT_PRODUCT, shared_docker_sandbox)
    assert found.roofline is None or "beyond_roofline" in found.tags


@pytest.mark.docker
@pytest.mark.exclusive
def test_a_view_writes_nothing(shared_docker_sandbox: Sandbox) -> None:
    judge_in_sandbox(VIEW, VIEW_TOO, shared_docker_sandbox)


@pytest.mark.docker
@pytest.mark.exclusive
def test_limits_take_little_time(shared_docker_sandbox: Sandbox) -> None:
    found = judge_in_sandbox(DIAGONAL, DIAGONAL.replace("Model(", "ModelNew("), shared_docker_sandbox)
    assert found.cost_s["limits"] < 1.5  # 0.3 s on a machine with nothing else to do

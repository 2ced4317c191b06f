"""Transformations of generated kernels: threads, schedules, split reductions, and the estimate that ranks them."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.builtin.analysis.cost import Prediction, estimate_s
from agents.builtin.analysis.inductor_module import Kernel, Module
from agents.builtin.analysis.loops import parse_body, render_body
from agents.builtin.analysis.reductions import read_update
from agents.builtin.candidate_file import cpp_source
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.generated import Generated, Input
from agents.builtin.transforms.fuse_rows import fuse_rows
from agents.builtin.transforms.stream_stores import stream_stores
from agents.builtin.transforms.threads import free_schedule, one_thread
from agents.builtin.transforms.unroll_sums import unroll_sums

ROWS = """
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=0L; x0<ROWSL; x0+=1L)
            {
                {
                    float tmp_acc0 = 0;
                    Vectorized<float> tmp_acc0_vec = Vectorized<float>(0);
                    for(int64_t x1=0L; x1<TRIPSL; x1+=16L)
                    {
                        auto tmp0 = Vectorized<float>::loadu(in_ptr0 + (x1 + TRIPSL*x0), 16L);
                        tmp_acc0_vec = tmp_acc0_vec + tmp0;
                    }
                    tmp_acc0 = tmp_acc0 + vec_reduce_all<float, 1>([](Vectorized<float>& x, Vectorized<float>& y) { return x + y; }, tmp_acc0_vec);
                    out_ptr0[(x0)] = static_cast<float>(tmp_acc0);
                }
            }
        }
    }
"""  # noqa: E501
OWN_SUMS = """
    float tmp_acc0_arr[2];
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        float tmp_acc0_local = 0;
        #pragma omp for
        for(int64_t x0=0L; x0<4096L; x0+=1L)
        {
            tmp_acc0_local = tmp_acc0_local + in_ptr0[(x0)];
        }
        tmp_acc0_arr[tid] = tmp_acc0_local;
    }
    for (int tid = 0; tid < 2; tid++)
    {
        tmp_acc0 = tmp_acc0 + tmp_acc0_arr[tid];
    }
"""


def rows(count: int = 128, trips: int = 256) -> str:
    return ROWS.replace("ROWS", str(count)).replace("TRIPS", str(trips))


def make_unit(
    body: str, shape: tuple[int, ...] = (128, 256), call: str = "", results: str = "(128,), (1,)"
) -> CompilationUnit:
    kernel = Kernel("kernel_0", ("const float*", "float*"), ("in_ptr0", "out_ptr0"), body)
    text = call or f"buf0 = empty_strided_cpu({results}, torch.float32)\nkernel_0(arg0_1, buf0)"
    function = ast.parse(f"def call():\n    {text.replace(chr(10), chr(10) + '    ')}\n    return (buf0,)").body[0]
    assert isinstance(function, ast.FunctionDef)
    argument = Input("argument", "", shape, (shape[-1], 1), "float32", "", None)
    generated = Generated("2", "", (argument,), (), ["leaf"], ["leaf"], True, 64, 2)
    return CompilationUnit(generated, Module((kernel,), ("arg0_1",), tuple(function.body)))


def body_of(unit: CompilationUnit) -> str:
    return unit.module.kernels[0].body


def test_one_thread_leaves_no_parallel_region() -> None:
    for text in (rows(), OWN_SUMS, "#pragma omp parallel for collapse(2)" + rows().replace("#pragma omp parallel", "")):
        changed = body_of(one_thread(make_unit(text)))
        assert "omp" not in changed
        assert changed.count("for(int64_t x0=") == 1, "the loops themselves stay"
    assert "int tid = 0;" in body_of(one_thread(make_unit(rows())))


@pytest.mark.parametrize(("count", "piece"), [(128, 4), (100_000, 3125), (9, 1), (8, 1), (7, None), (1, None)])
def test_rows_are_handed_out_in_pieces_by_their_number(count: int, piece: int | None) -> None:
    changed = body_of(free_schedule(make_unit(rows(count))))
    assert (f"#pragma omp for schedule(dynamic, {piece})" in changed) == (piece is not None)
    assert ("schedule" in changed) == (piece is not None)
    assert body_of(free_schedule(make_unit(changed))) == changed, "a schedule is given once"


def test_collapsed_loops_count_together() -> None:
    text = """
        #pragma omp parallel for collapse(2)
        for(int64_t x0=0L; x0<4L; x0+=1L)
        {
            for(int64_t x1=0L; x1<64L; x1+=16L)
            {
                out_ptr0[(x1 + 64L*x0)] = 1;
            }
        }
    """
    assert "collapse(2) schedule(dynamic, 1)" in body_of(free_schedule(make_unit(text)))
    unknown = text.replace("x1<64L", "x1<last")
    assert "schedule" not in body_of(free_schedule(make_unit(unknown)))


def test_sums_of_a_threads_own_keep_their_fixed_shares() -> None:
    assert "schedule" not in body_of(free_schedule(make_unit(OWN_SUMS)))


def test_a_sum_gets_several_accumulators_and_they_are_added() -> None:
    changed = body_of(unroll_sums(make_unit(rows())))
    for part in (1, 2, 3):
        assert f"Vectorized<float> tmp_acc0_vec_part{part} = Vectorized<float>(0);" in changed
        assert f"tmp_acc0_vec = tmp_acc0_vec + tmp_acc0_vec_part{part};" in changed
    assert "for(int64_t x1_first=0L; x1_first<256L; x1_first+=64L)" in changed


@pytest.mark.parametrize(
    "line",
    [
        "tmp_acc0_vec = tmp0 - tmp_acc0_vec;",  # not a reduction
        "tmp_acc0_vec = tmp_acc0_vec + tmp0 * tmp_acc0_vec;",
        "argmax_combine_vec(tmp_acc0_vec, tmp0, x1);",
        "tmp0.store(out_ptr0 + (x1)); tmp_acc0_vec.store(out_ptr0 + (x1));",
    ],
)
def test_loops_that_do_more_with_an_accumulator_stay(line: str) -> None:
    text = rows().replace("tmp_acc0_vec = tmp_acc0_vec + tmp0;", line)
    assert body_of(unroll_sums(make_unit(text))) == text


def test_short_loops_and_shared_ones_stay() -> None:
    assert body_of(unroll_sums(make_unit(rows(trips=48)))) == rows(trips=48)
    assert "_part" not in body_of(unroll_sums(make_unit(OWN_SUMS)))


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ("tmp_acc0 = max_propagate_nan(tmp_acc0, tmp3);", "max_propagate_nan"),
        ("tmp_acc0_vec = maximum(tmp_acc0_vec, tmp3);", "maximum"),
        ("tmp_acc0_vec = min_masked_reduce(tmp_acc0_vec, tmp3, 5L);", "minimum"),
        ("tmp_acc0_vec = welford_combine(tmp_acc0_vec, tmp3, &welford_helper0);", "welford"),
        ("tmp_acc0_vec = cascade_sum_combine(tmp3, 5L, &cascade_helper0);", "cascade"),
        ("tmp_acc0_vec = tmp_acc0_vec * tmp3;", "*"),
    ],
)
def test_updates_are_recognised(line: str, operation: str) -> None:
    update = read_update(line)
    assert update is not None and update.operation == operation


@given(st.text(alphabet="tmp_ac0+*=();,& welford_combine1Lx", max_size=60))
def test_any_line_is_an_update_or_not(text: str) -> None:
    update = read_update(text)
    assert update is None or text.startswith(update.accumulator)


@settings(max_examples=6, deadline=None)
@given(count=st.integers(1, 9), vectors=st.integers(1, 21), which=st.sampled_from([1, 2, 3]))
def test_transformed_kernels_compute_the_same(
    tmp_path_factory: pytest.TempPathFactory, count: int, vectors: int, which: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("kernels")
    trips = vectors * 16
    transforms = {1: [unroll_sums], 2: [unroll_sums, free_schedule], 3: [unroll_sums, free_schedule, one_thread]}[which]
    plain = make_unit(rows(count, trips))
    changed = plain
    for transform in transforms:
        changed = transform(changed)
    total = count * trips
    main = f"""
int main() {{
  static float in[{total}], out[{count}];
  for (int i = 0; i < {total}; i++) in[i] = float(i % 97) - 40;
  kernel_0(in, out);
  for (int i = 0; i < {count}; i++) {{
    double sum = 0;
    for (int k = 0; k < {trips}; k++) sum += in[i * {trips} + k];
    if (sum != out[i]) return 1;
  }}
  return 0;
}}
"""
    for name, unit in (("plain", plain), ("changed", changed)):
        (folder / f"{name}.cpp").write_text(cpp_source(unit.module.kernels, 64) + main)
        build = ["g++", "-O1", "-march=native", "-std=c++17", "-fopenmp", "-Wno-psabi", f"{name}.cpp", "-o", name]
        subprocess.run(build, cwd=folder, check=True)
        assert subprocess.run([str(folder / name)], timeout=60).returncode == 0


def test_the_estimate_sees_what_waits_and_what_moves() -> None:
    long_rows = make_unit(rows(4096, 4096), (4096, 4096))
    cached = make_unit(rows(64, 512), (64, 512))
    assert estimate_s(unroll_sums(cached)) < estimate_s(cached)
    assert estimate_s(long_rows) > 100 * estimate_s(cached)
    copy = rows(4096, 4096).replace(
        "tmp_acc0_vec = tmp_acc0_vec + tmp0;", "tmp0.store(out_ptr0 + (x1 + 4096L*x0));"
    ).replace("out_ptr0[(x0)] = static_cast<float>(tmp_acc0);", "")  # fmt: skip
    unit = make_unit(copy, (4096, 4096), results="(4096, 4096), (4096, 1)")
    streamed = stream_stores(unit)
    assert "kw::stream_store" in body_of(streamed)
    assert estimate_s(unit) > 1.2 * estimate_s(streamed)


def test_the_estimate_counts_a_buffer_that_stays_in_cache_once() -> None:
    text = """
        #pragma omp parallel
        {
            {
                #pragma omp for
                for(int64_t x0=0L; x0<1024L; x0+=1L)
                {
                    for(int64_t x1=0L; x1<1024L; x1+=16L)
                    {
                        auto tmp0 = Vectorized<float>::loadu(in_ptr0 + (x1 + 1024L*x0), 16L);
                        tmp0.store(out_ptr0 + (x1 + 1024L*x0));
                    }
                }
            }
            {
                #pragma omp for
                for(int64_t x0=0L; x0<1024L; x0+=1L)
                {
                    for(int64_t x1=0L; x1<1024L; x1+=16L)
                    {
                        auto tmp0 = Vectorized<float>::loadu(out_ptr0 + (x1 + 1024L*x0), 16L);
                        tmp0.store(out_ptr0 + (x1 + 1024L*x0));
                    }
                }
            }
        }
    """
    unit = make_unit(text, (1024, 1024), results="(1024, 1024), (1024, 1)")
    fused = fuse_rows(unit)
    assert "chunk" in body_of(fused)
    assert 1.3 < estimate_s(unit) / estimate_s(fused) < 2.0


def test_short_kernels_are_estimated_faster_on_one_thread_and_long_ones_slower() -> None:
    short, long = make_unit(rows(8, 64), (8, 64)), make_unit(rows(4096, 4096).replace("tmp0;", "tmp0.exp();"))
    assert estimate_s(one_thread(short)) < estimate_s(short)
    assert estimate_s(one_thread(long)) > 1.5 * estimate_s(long)


def test_a_gain_cannot_be_more_than_the_estimated_part_of_a_measured_call() -> None:
    prediction = Prediction(before_s=0.002, after_s=0.001)
    assert prediction.gain() == 2.0
    assert prediction.gain(0.0015) == 2.0
    assert prediction.gain(0.011) == pytest.approx(1.1)
    assert Prediction(0.0, 0.0).gain() == 1.0


@given(st.lists(st.sampled_from(["#pragma omp for", "{", "}", "for(int64_t x0=0L; x0<9L; x0+=1L)", "a;"]), max_size=12))
def test_transforms_leave_trees_that_parse(lines: list[str]) -> None:
    text = "\n".join(lines)
    depth = 0
    for line in lines:
        depth += (line == "{") - (line == "}")
        if depth < 0:
            return
    if depth:
        return
    for transform in (one_thread, free_schedule, unroll_sums):
        changed = body_of(transform(make_unit(text)))
        assert render_body(parse_body(changed)).split() == changed.split()
    assert not re.search("pragma omp", body_of(one_thread(make_unit(text)))) or "#pragma omp for" in lines

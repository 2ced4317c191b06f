"""What the referee reads out of the answers of NVIDIA's tools: their documented forms, broken ones and hostile ones."""

import csv
import io
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.platforms.gpu.profile_text import profile_text
from evaluator.referee.platforms.gpu.profiling import counters, kernels, mode, sanitizer
from evaluator.referee.platforms.gpu.profiling.counters import METRICS, TIME, Chosen

WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
READ, REGISTERS = "dram__bytes_read.sum", "launch__registers_per_thread"
RATE = "dram__bytes.sum.per_second"
ASKED = {name: metric for metric in METRICS for name in metric.names[:1]}
HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]


def table(metrics: list[str], units: list[str], *rows: tuple[str, list[str]], before: str = "") -> str:
    """A table as `--csv --page raw` prints it: names, units, and a line for each launch."""
    out = io.StringIO()
    out.write(before)
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*HEAD, *metrics])
    writer.writerow([*[""] * len(HEAD), *units])
    for number, (kernel, values) in enumerate(rows):
        writer.writerow([str(number), "7", "python3", "host", kernel, "1", "7", "(256, 1, 1)", "(64, 1, 1)", *values])
    return out.getvalue()


PLAIN = table(
    [TIME, WARPS, READ, REGISTERS, RATE],
    ["ns", "%", "byte", "register/thread", "byte/second"],
    ("void own<float>(const float *, float *)", ["3,000", "60.5", "10,240,000", "40", "3,413,333,333,333.3"]),
    ("reduce", ["1,000", "20.5", "2,048", "16", "2.5e+09"]),
    before="==PROF== Connected to process 7 (/usr/bin/python3)\nprinted by the candidate\n==PROF== Disconnected\n",
)


def test_the_24_metrics_are_asked_for_in_four_questions() -> None:
    assert len(METRICS) == 24 and len({name for metric in METRICS for name in metric.names}) == 28
    assert {metric.question for metric in METRICS} == set(counters.QUESTIONS)
    words = counters.arguments(ASKED)
    assert words[words.index("--metrics") + 1].split(",") == [TIME, *ASKED]
    for option, value in (
        ("--page", "raw"),
        ("--print-units", "base"),
        ("--clock-control", "none"),
        ("--target-processes", "application-only"),
        ("--profile-from-start", "off"),
        ("--launch-count", str(counters.LAUNCHES)),
    ):
        assert words[words.index(option) + 1] == value
    assert counters.query("launch") == ["--query-metrics", "--query-metrics-collection", "launch"]


def test_a_table_is_read_and_folded_over_kernels() -> None:
    found = counters.parse(PLAIN, ASKED)
    assert [each.kernel for each in found] == ["void own<float>(const float *, float *)", "reduce"]
    assert [each.time_ns for each in found] == [3000, 1000]
    whole = counters.fold(found, ASKED)
    assert whole["launches"] == 2 and whole["time_us"] == 4.0
    assert whole["occupancy"] == {WARPS: 50.5, REGISTERS: 40}
    assert whole["memory"][READ] == 10_242_048
    assert whole["memory"][RATE] == pytest.approx((3 * 3.4133333333333e12 + 2.5e9) / 4, rel=1e-6)
    assert whole["compute"] == whole["stalls"] == {}
    longest, other = whole["by_kernel"]
    assert (longest["share"], other["share"]) == (0.75, 0.25)
    assert other["metrics"][REGISTERS] == 16


def test_units_that_are_not_the_base_ones_are_told_apart() -> None:
    log = table([TIME, READ], ["us", "Kbyte"], ("own", ["2.5", "1.5"]))
    [launch] = counters.parse(log, ASKED)
    assert launch.time_ns == 2500 and launch.values == {READ: 1500}
    [launch] = counters.parse(table([TIME, READ], ["furlong", "byte"], ("own", ["2.5", "1"])), ASKED)
    assert launch.time_ns is None
    assert counters.fold([launch], ASKED)["time_us"] is None


@pytest.mark.parametrize("cell", ["n/a", "", "nan", "inf", "-1", "1e999", "1,2,3", "27.595.520", "0x10", "9" * 50, "١"])
def test_what_is_no_number_is_left_out(cell: str) -> None:
    [launch] = counters.parse(table([TIME, READ], ["ns", "byte"], ("own", ["5", cell])), ASKED)
    assert launch.values == {}


@pytest.mark.parametrize(
    "log",
    [
        "",
        "==ERROR== no device\n",
        '"ID","Kernel Name"\n"0","own"\n',
        f'"ID","Kernel Name","{READ}","{READ}"\n"0","own","1","2"\n',
        f'"ID","Kernel Name","{READ}"\n"0","own","1","2"\n',
        f'"ID","Kernel Name","{READ}"\n"0","own","{"9" * 30_000}"\n',
        '"ID","Kernel Name",' + ",".join(f'"m{n}"' for n in range(500)) + "\n",
        PLAIN.splitlines()[3] + "\n",
    ],
    ids=["empty", "error", "no metric", "one twice", "other width", "long line", "many columns", "names alone"],
)
def test_what_is_no_table_of_metrics_is_refused(log: str) -> None:
    with pytest.raises(ValueError):
        counters.parse(log, ASKED)


def test_a_table_that_was_cut_keeps_its_whole_lines() -> None:
    assert [each.kernel for each in counters.parse(PLAIN[:-30], ASKED)] == ["void own<float>(const float *, float *)"]


def test_more_launches_than_were_asked_for_are_not_read() -> None:
    log = table([TIME, READ], ["ns", "byte"], *[("own", ["1", "1"])] * 10_000)
    assert len(counters.parse(log, ASKED)) < 100


@given(st.lists(st.one_of(st.text(max_size=200), st.sampled_from(PLAIN.splitlines())), max_size=12))
def test_any_text_is_a_table_or_refused_and_its_profile_has_a_bounded_form(lines: list[str]) -> None:
    try:
        found = counters.parse("\n".join(lines), ASKED)
    except ValueError:
        return
    whole = counters.fold(found, ASKED)
    shown = profile_text({"gpu": {}, "detail": {"counters": {"source": "ncu", **whole}}}).splitlines()
    assert len(shown) <= 60 and all(len(line) <= 100 and line.isprintable() for line in shown)


@given(st.text(max_size=300))
def test_names_of_kernels_are_printable_and_short(name: str) -> None:
    for each in counters.parse(table([TIME], ["ns"], (name.replace("\n", " ").replace("\r", " "), ["5"])), ASKED):
        assert len(each.kernel) <= 120 and (each.kernel.isprintable() or not each.kernel)


LISTED = """
Device NVIDIA H200 (GH100)
----------------------------------------------------------------------------
Metric Name                            Metric Type  Metric Unit  Metric Description
---------------------------------------------------------------------------
dram__bytes_op_read                    Counter      byte         # of bytes read
sm__warps_active                       Counter      warp         cumulative # of warps in flight
"launch__registers_per_thread","Counter","register/thread","registers"
"""


def test_names_that_this_version_lacks_are_told_and_others_asked_for_in_their_place() -> None:
    known = counters.listed_names(LISTED)
    assert known == {"dram__bytes_op_read", "sm__warps_active", "launch__registers_per_thread"}
    chosen = counters.choose(known, listed=["profiling", "launch"])
    assert set(chosen.asked) == {"dram__bytes_op_read.sum", WARPS, REGISTERS}
    assert len(chosen.unknown) == 21 and "launch__occupancy_limit_blocks" in chosen.unknown
    assert chosen.asked["dram__bytes_op_read.sum"].question == "memory"


def test_without_a_list_all_are_tried() -> None:
    chosen = counters.choose(set(), listed=[])
    assert set(chosen.asked) == set(ASKED) and chosen.unknown == ()
    of_launches = set(counters.choose({"sm__warps_active"}, listed=["profiling"]).asked)
    assert of_launches == {WARPS, *(name for name in ASKED if name.startswith("launch__"))}


def test_a_name_that_the_run_does_not_find_is_left_out_of_the_next_one() -> None:
    chosen = Chosen(ASKED, ())
    assert counters.without(chosen, "==PROF== all is well") is chosen
    left = counters.without(chosen, r"==ERROR== Failed to find metric regex:^sm__warps_active\.(sum|avg)$")
    assert WARPS not in left.asked and left.unknown == (WARPS,) and len(left.asked) == 23


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"log": "==ERROR== ERR_NVGPUCTRPERM - no permission", "status": 1}, "RestrictProfilingToAdminUsers=0"),
        ({"log": "==ERROR== Profiling failed\nmore", "status": 1}, "Nsight Compute: Profiling failed"),
        ({"log": "==WARNING== No kernels were profiled.", "status": 0}, "saw no kernel"),
        ({"log": "", "status": None}, "did not end within 30 s"),
        ({"log": "", "errors": "Traceback\nRuntimeError: \x1b[31mno\n", "status": 1}, "RuntimeError: [31mno"),
        ({"log": "x" * 10**6, "status": {"a": ["b"] * 1000}}, "told no table (status "),
    ],
)
def test_why_there_is_no_table(told: dict[str, Any], said: str) -> None:
    reason = counters.reason(**{"errors": "", **told}, timeout_s=30.0)
    assert said in reason and reason.isprintable() and len(reason) < 500


def test_a_flood_of_spaces_takes_no_time() -> None:
    start = time.perf_counter()
    counters.reason(log="==ERROR==" + " " * (1 << 20) + "x" * 500, errors="", status=1, timeout_s=1.0)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("lines", [float("inf"), float("nan"), 1 << 80, "many", [], None, True, -1, 30])
def test_a_forged_number_of_lines_is_an_error_of_form_and_no_other(lines: Any) -> None:
    reply = {"found": True, "status": 0, "log": "Version 1", "errors": "", "lines": lines}
    watched: Any = SimpleNamespace(run=lambda *_, **__: reply, left_s=lambda: 1.0)
    with pytest.raises(ValueError, match=r"told no table|no number|out of range"):
        mode._counters(watched, lambda: None, mode._Observed(("counters",)))


def test_the_version_is_told() -> None:
    assert counters.version("NVIDIA (R) Nsight Compute\nVersion 2025.3.0.0 (build 36) (public)") == "2025.3.0.0"
    assert counters.version("nothing") == ""


MEMCHECK = """printed by the candidate
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at scale(const float *, float *, int)+0x70 in kernel.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3c7ec00000 of size 252 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at scale(const float *, float *, int)+0x70 in kernel.cu:41
=========     by thread (30,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000f8 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at blockReduce(int *, int *)+0xf0 in racecheck.cu:12
=========     and Read access at blockReduce(int *, int *)+0xd0 in racecheck.cu:14 [32 hazards]
=========
========= Warning: Race reported between Write access at other(int *)+0x10 in racecheck.cu:30
=========     and Write access at other(int *)+0x10 in racecheck.cu:30 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
INIT = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x250 in vectors.cu:41:vector_add(int*)
=========     by thread (16,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc
========= ERROR SUMMARY: 1,234 errors
"""
SYNC = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at divergent(int *)+0xb0 in probe.cu:20
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 16 errors
"""


def places(tool: str, log: str) -> list[tuple[str, str, str, int]]:
    return [
        (each["kind"], each["kernel"], each["where"], each["times"]) for each in sanitizer.parse(tool, log).findings
    ]


def test_each_tool_of_the_sanitizer_is_read() -> None:
    assert sanitizer.parse("memcheck", MEMCHECK).errors == 3
    assert places("memcheck", MEMCHECK) == [
        ("invalid access", "scale(const float *, float *, int)", "kernel.cu:41", 2),
        ("error of a CUDA call", "", "", 1),
    ]
    assert "31,0,0" in sanitizer.parse("memcheck", MEMCHECK).findings[0]["text"]
    assert sanitizer.parse("racecheck", RACE).errors == 2
    assert places("racecheck", RACE) == [
        ("race", "blockReduce(int *, int *)", "racecheck.cu:12", 1),
        ("race", "other(int *)", "racecheck.cu:30", 1),
    ]
    assert sanitizer.parse("initcheck", INIT).errors == 1234
    assert places("initcheck", INIT) == [("uninitialized read", "vector_add(int*)", "vectors.cu:41", 1)]
    assert places("synccheck", SYNC) == [("barrier", "divergent(int *)", "probe.cu:20", 1)]
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitizer.parse("memcheck", clean) == sanitizer.Report(0, [])


def test_a_call_is_watched_with_each_tensor_an_allocation_of_its_own() -> None:
    words = sanitizer.arguments("racecheck")
    assert words[words.index("--tool") + 1] == "racecheck"
    assert sanitizer.ENVIRONMENT == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def test_without_a_summary_there_is_no_number_of_errors() -> None:
    assert sanitizer.parse("memcheck", "========= COMPUTE-SANITIZER\nSegmentation fault\n").errors is None
    assert sanitizer.parse("memcheck", "========= ERROR SUMMARY: many errors\n").errors is None
    assert "did not end" in sanitizer.reason(errors="", status=None, timeout_s=5)
    assert "status 127): no" in sanitizer.reason(errors="x\nno\n", status=127, timeout_s=5)


def test_a_flood_of_findings_is_bounded() -> None:
    flood = "".join(
        f"========= Invalid __global__ write of size 4 bytes\n=========     at k{n}(int *)+0x70 in k.cu:{n}\n"
        for n in range(50_000)
    )
    assert len(sanitizer.parse("memcheck", flood).findings) == sanitizer.FINDINGS


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from(f"{MEMCHECK}{RACE}{INIT}{SYNC}".splitlines()))))
def test_any_text_of_a_sanitizer_is_read_to_printable_rows(lines: list[str]) -> None:
    report = sanitizer.parse("memcheck", "\n".join(lines))
    for row in report.findings:
        assert all(str(value).isprintable() and len(str(value)) <= 240 for value in row.values())
    detail = {"sanitizer": {"source": "it", "errors": [["memcheck", report.errors or 0]], "findings": report.findings}}
    shown = profile_text({"gpu": {}, "detail": detail}).splitlines()
    assert len(shown) <= 60 and all(len(line) <= 100 for line in shown)


USAGE = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit

Resource usage:
 Common:
  GLOBAL:0
 Function void scaled<float>(float const*, float*, int):
  REG:40 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _Z6reducePf:
  REG:16 STACK:0 SHARED:0 LOCAL:8 CONSTANT[0]:360
"""


def test_resources_as_cuobjdump_prints_them() -> None:
    assert kernels.read_usage(USAGE) == [
        {
            "kernel": "scaled<float>(float const*, float*, int)",
            "compiler": "nvcc",
            "registers": 40,
            "stack_bytes": 16,
            "shared_bytes": 1024,
            "local_bytes": 0,
        },
        {
            "kernel": "_Z6reducePf",
            "compiler": "nvcc",
            "registers": 16,
            "stack_bytes": 0,
            "shared_bytes": 0,
            "local_bytes": 8,
        },
    ]
    assert kernels.read_usage("cuobjdump info : File 'a.so' does not contain device code") == []
    with pytest.raises(ValueError):
        kernels.read_usage([])


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from(USAGE.splitlines()))))
def test_any_text_of_resources_is_read_to_bounded_rows(lines: list[str]) -> None:
    found = kernels.read_usage("\n".join(lines))
    assert len(found) <= 100 and all(len(each["kernel"]) <= 120 for each in found)


def test_launches_are_summed_by_kernel() -> None:
    rows = [
        ["own", 30.0, 40, 1024, 50, 4.0, 32.0, [64, 1, 1], [256, 1, 1]],
        ["own", 10.0, 40, 0, 50, 4.0, 32.0, [8, 1, 1], [256, 1, 1]],
        ["Memset (Device)", 10.0, None, None, None, None, None, None, None],
    ]
    own, memset = kernels.read_launches(rows)
    assert (own["share"], own["launches"], own["grid"], own["shared_bytes"]) == (0.8, 2, [64, 1, 1], 1024)
    assert memset.keys() == {"kernel", "share", "time_us", "launches"}
    assert kernels.read_launches([]) == []


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [["own", 1.0]],
        [["own", -1.0, *[None] * 7]],
        [["own", float("nan"), *[None] * 7]],
        [["own", 1.0, *[None] * 5, [1, 1], None]],
        [["own", 1.0, "many", *[None] * 6]],
        [["own", 1.0, *[None] * 5, [1, 1, 1e400], None]],
    ],
)
def test_launches_of_another_form_are_refused(rows: Any) -> None:
    with pytest.raises(ValueError):
        kernels.read_launches(rows)


def test_triton_counts_spilled_words() -> None:
    [found] = kernels.read_triton([["scaled", 24, 3, 2048, 8, None]])
    assert found == {
        "kernel": "scaled",
        "compiler": "triton",
        "registers": 24,
        "spilled_bytes": 12,
        "shared_bytes": 2048,
        "warps": 8,
    }
    for broken in (None, [["scaled"]], [["scaled", "many", 0, 0, 0, 0]], [["scaled", -1, 0, 0, 0, 0]]):
        with pytest.raises(ValueError):
            kernels.read_triton(broken)


def test_of_many_configurations_the_one_that_ran_comes_first() -> None:
    compiled = [{"kernel": "tuned", "registers": number} for number in range(32, 80)]
    ran = kernels.those_that_ran(compiled, [{"kernel": "void tuned(float*)", "registers_per_thread": 64.0}])
    assert len(ran) == kernels.SHOWN and ran[0]["registers"] == 64


FULL: dict[str, Any] = {
    "bytes_moved_min": 4096,
    "achieved_gb_per_s": 1.0,
    "peak_read_gb_per_s": 4000.0,
    "peak_write_gb_per_s": 3000.0,
    "peak_copy_gb_per_s": 3500.0,
    "flops": 10**9,
    "achieved_gflop_per_s": 5.0,
    "peak_gflop_per_s": 50000.0,
    "handover_ms": 0.1,
    "timed_call_ms": 0.5,
    "repeated_call_ms": 0.4,
    "output_bytes": 4096,
    "roofline_note": "the peaks are those of another day",
    "gpu": {"clock_mhz": [1755, 1980], "temperature_c": [41, 60], "power_w": [300, 700], "others": [4242]},
}


def test_the_whole_text_answers_each_question_in_60_lines() -> None:
    rows = [[f"kernel_{n}" * 10, 10.0 + n, 40, 1024, 50, 4.0, 32.0, [64, 1, 1], [256, 1, 1]] for n in range(30)]
    metrics = list(ASKED)
    launches = [(f"kernel_{n}", ["1000", *["12.5"] * len(metrics)]) for n in range(20)]
    log = table([TIME, *metrics], ["ns", *[""] * len(metrics)], *launches)
    shown = profile_text(
        {
            **FULL,
            "detail": {
                "kernels": {"source": "torch's profiler", "kernels": kernels.read_launches(rows)},
                "counters": {"source": "Nsight Compute 2025.3", **counters.fold(counters.parse(log, ASKED), ASKED)},
                "compiled": {"source": "it", "kernels": kernels.read_usage(USAGE) * 6, "kernels_seen": 30},
                "sanitizer": {
                    "source": "it",
                    "errors": [["memcheck", 3]],
                    "findings": sanitizer.parse("memcheck", MEMCHECK).findings,
                },
                "absent": {"metrics": f"Nsight Compute has none of these names here: {', '.join(metrics)}"},
            },
        }
    ).splitlines()
    assert len(shown) <= 60 and all(len(line) <= 100 for line in shown)
    text = "\n".join(shown)
    for said in ("occupancy: warps active 12.5%", "memory: DRAM 12.5%", "compute: tensor pipe 12.5%", "stalls, in"):
        assert said in text
    assert "at barriers" in text and "memcheck 3" in text and "40 registers" in text
    assert "not measured" in text and "more lines" not in text


@pytest.mark.parametrize(("name", "question"), [(name, each.question) for each in METRICS for name in each.names])
def test_every_metric_has_words_in_the_text(name: str, question: str) -> None:
    counted = {"source": "it", "launches": 1, "time_us": None, question: {name: 12.5}, "by_kernel": []}
    shown = profile_text({"gpu": {}, "detail": {"counters": counted}})
    assert " 12" in shown and name not in shown

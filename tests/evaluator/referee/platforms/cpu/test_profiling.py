"""The parts of a profile that read what others wrote: remarks of g++, claims of a candidate."""

import ctypes
import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.platforms.cpu.profile_text import MAX_COLUMNS, MAX_LINES, fit
from evaluator.profile import SCHEMA, with_detail
from evaluator.referee.platforms.cpu.profiling import compiler_remarks, launch, native
from evaluator.referee.protocol import untrusted
from evaluator.referee.runner.platforms.cpu.profiling import hot_code, stack_sampler
from sandbox.base import Command, Completed, Promise
from tasks.build import task_from_source
from tasks.outcomes import Verdict, candidate_hash
from tests.support.commands import OP

KERNEL = r"""
#include <cmath>
extern "C" void plain(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++)  // plain
        y[i] = x[i] * 2.0f;
}
extern "C" void scan(float* a, long n) {
    for (long i = 1; i < n; i++)  // scan
        a[i] += a[i - 1] * 0.5f;
}
extern "C" void calling(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++)  // calling
        y[i] = std::erf(x[i]);
}
extern "C" void rows(const float* x, float* y, long n, long m) {
    for (long r = 0; r < n; r++) {  // outer
        float s = 0;
        for (long i = 0; i < m; i++) s += x[r * m + i];  // first inner
        for (long i = 0; i < m; i++) y[r * m + i] = x[r * m + i] / s;  // second inner
    }
}
"""
INTRINSICS = r"""
#include <immintrin.h>
extern "C" __m256 _ZGVdN8v_expf(__m256);
extern "C" void moved(const float* x, float* y, long n) {
    for (long i = 0; i + 8 <= n; i += 8)  // loads and stores
        _mm256_storeu_ps(y + i, _mm256_loadu_ps(x + i));
}
extern "C" void streamed(const float* x, float* y, long n) {
    for (long i = 0; i + 8 <= n; i += 8)  // streams
        _mm256_stream_ps(y + i, _mm256_loadu_ps(x + i));
}
extern "C" void called(const float* x, float* y, long n) {
    for (long i = 0; i + 8 <= n; i += 8)  // vector function
        _mm256_storeu_ps(y + i, _ZGVdN8v_expf(_mm256_loadu_ps(x + i)));
}
extern "C" void scan(float* a, long n) {
    for (long i = 1; i < n; i++)  // no vectors
        a[i] += a[i - 1] * 0.5f;
}
"""


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(KERNEL.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def remarks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What g++ says through the shim, with a shared object that comes out as it would have without."""
    folder = tmp_path_factory.mktemp("shim")
    script = folder / "g++"
    script.write_text(compiler_remarks.shim("g++", folder).replace("exec g++", "exec /usr/bin/g++"))
    script.chmod(0o755)
    source = folder / "kernel.cpp"
    source.write_text(KERNEL)
    library = folder / "kernel.so"
    subprocess.run([script, "-O3", "-mavx2", "-shared", "-fPIC", source, "-o", library], check=True)
    x, y = (ctypes.c_float * 2)(1.5, 3.0), (ctypes.c_float * 2)()
    ctypes.CDLL(str(library)).plain(x, y, ctypes.c_long(2))
    assert list(y) == [3.0, 6.0]
    written = list(folder.glob("remarks.*.txt"))
    assert len(written) == 1
    return written[0].read_text()


def test_loops_are_told_from_real_remarks(remarks: str) -> None:
    rows = {row["at"]: row for row in compiler_remarks.condense(compiler_remarks.parse(remarks))}
    plain = rows[f"kernel.cpp:{line_of('plain')}"]
    assert (plain["vectorized"], plain["vector_bytes"]) == (True, 32)
    scan = rows[f"kernel.cpp:{line_of('scan')}"]
    assert scan["vectorized"] is False
    assert scan["notes"][0] == "an iteration may need what an earlier one wrote"
    calling = rows[f"kernel.cpp:{line_of('calling')}"]
    assert calling["notes"][0] == "it calls a function that has no vector form"
    assert f"kernel.cpp:{line_of('outer')}" not in rows
    assert rows[f"kernel.cpp:{line_of('second inner')}"]["vectorized"] is True
    assert not any("erf" in row["at"] or "cmath" in row["at"] for row in rows.values())


def test_machine_code_is_told_with_the_lines_that_the_shim_has_kept(tmp_path: Path) -> None:
    script, source, library = tmp_path / "g++", tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    script.write_text(compiler_remarks.shim("/usr/bin/g++", tmp_path))
    script.chmod(0o755)
    source.write_text(KERNEL)
    command = ["-O3", "-mavx2", "-shared", "-fPIC", str(source)]
    subprocess.run([str(script), *command, "-o", str(library)], check=True)
    starts, names = symbols = stack_sampler._symbols(str(library))
    at = names.index("plain")
    code = hot_code.disassemble(str(library), starts[at], starts[at + 1])
    own = [each for each in code if (each.file, each.line) == ("kernel.cpp", line_of("plain") + 1)]
    assert any("ymm" in each.text for each in own), "vectors of 32 bytes"
    hot = next(each for each in own if "ymm" in each.text)
    samples = {str(library): Counter({hot.address: 80, code[0].address: 1})}
    (told,) = hot_code.stretches(samples, {str(library): symbols}, 100)
    assert told[:3] == ["plain", "kernel.so", 0.81]
    assert [0.8, hot.text, "kernel.cpp", hot.line] in told[3]
    assert len(told[3]) <= hot_code.LENGTH
    without = tmp_path / "without.so"
    subprocess.run(["g++", *command, "-o", str(without)], check=True)
    plain = hot_code.disassemble(str(without), starts[at], starts[at + 1])
    assert [each.text for each in plain] == [each.text for each in code], "the instructions are those that were timed"
    assert {each.line for each in plain} == {0}
    torch = tmp_path / "torch" / "include"
    torch.mkdir(parents=True)
    subprocess.run([str(script), *command, f"-I{torch}", "-o", str(without)], check=True)
    assert {each.line for each in hot_code.disassemble(str(without), starts[at], starts[at + 1])} == {0}


def test_an_instruction_of_an_intrinsic_is_of_the_line_that_it_was_written_in(tmp_path: Path) -> None:
    source, library = tmp_path / "k.cpp", tmp_path / "k.so"
    source.write_text(INTRINSICS)
    subprocess.run(["g++", "-O3", "-mavx2", "-g1", "-shared", "-fPIC", source, "-o", library], check=True)
    starts, names = stack_sampler._symbols(str(library))
    at = names.index("moved")
    lines = INTRINSICS.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if "loads and stores" in line)
    vectors = [each for each in hot_code.disassemble(str(library), starts[at], starts[at + 1]) if "ymm" in each.text]
    assert {(each.file, each.line) for each in vectors} == {("k.cpp", first + 1)}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80))
def test_the_hottest_stretch_has_most_samples(counts: list[int]) -> None:
    code = [hot_code.Instruction(4 * at, f"i{at}") for at in range(len(counts))]
    found = hot_code.hottest(code, {4 * at: count for at, count in enumerate(counts)})
    length = min(hot_code.LENGTH, len(counts))
    most = max(sum(counts[at : at + length]) for at in range(len(counts) - length + 1))
    assert (len(found), sum(counts[each.address // 4] for each in found)) == (length, most)


def test_what_cannot_be_disassembled_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "no.so"
    file.write_text("no library")
    assert hot_code.disassemble(str(file), 0, 100) == []
    assert hot_code.stretches({str(file): Counter({5: 9})}, {str(file): ([0], ["f"])}, 9) == []
    assert hot_code.stretches({str(file): Counter({5: 9})}, {str(file): ([], [])}, 9) == []


def test_loops_of_intrinsics_are_not_called_scalar(tmp_path: Path) -> None:
    source, script = tmp_path / "k.cpp", tmp_path / "c++"
    source.write_text(INTRINSICS)
    script.write_text(compiler_remarks.shim("/usr/bin/g++", tmp_path))
    script.chmod(0o755)
    library = tmp_path / "k.so"
    subprocess.run([script, "-O3", "-mavx2", "-shared", "-fPIC", source, "-o", library], check=True)
    [written] = tmp_path.glob("remarks.*.txt")
    loops = compiler_remarks.condense(compiler_remarks.parse(written.read_text()))
    at = {f"k.cpp:{n}": line.partition("// ")[2] for n, line in enumerate(INTRINSICS.splitlines(), 1) if "// " in line}
    assert {at[loop["at"]]: loop["intrinsics"] for loop in loops} == {
        "loads and stores": True, "streams": True, "vector function": True, "no vectors": False,
    }  # fmt: skip
    shown = load_platform("cpu").profile_text({"detail": {"vectorization": {"loops": loops}}}).splitlines()
    assert [line for line in shown if "NOT vectorized" in line] == [shown[1]]
    assert sum("vectors by its own intrinsics" in line for line in shown) == 3


def test_loops_that_were_not_vectorised_come_first(remarks: str) -> None:
    rows = compiler_remarks.condense(compiler_remarks.parse(remarks))
    vectorized = [row["vectorized"] for row in rows]
    assert vectorized == sorted(vectorized)
    assert {True, False} == set(vectorized)
    lines = [int(row["at"].rpartition(":")[2]) for row in rows if not row["vectorized"]]
    assert lines == sorted(lines)


def test_condensing_stays_small_and_quick_whatever_the_remarks_say() -> None:
    flood = "\n".join(f"k{n % 7}.cpp:{n}:1: missed: couldn't vectorize loop" for n in range(50_000))
    start = time.monotonic()
    rows = compiler_remarks.condense(compiler_remarks.parse(flood))
    assert len(rows) == 20
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, True, "7", None, [7], 1e30])
def test_a_claim_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"no number|out of range"):
        untrusted.number(value)


@given(st.text(max_size=400))
def test_claimed_text_is_one_short_printable_line(value: str) -> None:
    line = untrusted.text(value)
    assert len(line) <= 80
    assert line.isprintable()


@pytest.mark.parametrize("make", ["link", "pipe", "folder"])
def test_only_plain_files_of_a_candidate_are_read(make: str, tmp_path: Path) -> None:
    path = tmp_path / "remarks.1.txt"
    if make == "link":
        path.symlink_to("/etc/passwd")
    elif make == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError):
        launch.read_claimed(path, 1000)
    plain = tmp_path / "plain"
    plain.write_bytes(b"12345\xff")
    assert launch.read_claimed(plain, 3) == "123"
    assert launch.read_claimed(plain, 100) == "12345\ufffd"


def test_samples_find_the_function_that_spends_the_time(tmp_path: Path) -> None:
    profiler = tmp_path / "profile"
    profiler.mkdir()
    sampler = stack_sampler.build(profiler, "/usr/bin/g++")
    source = tmp_path / "busy.cpp"
    source.write_text(
        'extern "C" double busy(long n) { double s = 1; for (long i = 0; i < n; i++) s = s * 0.5 + i; return s; }'
    )
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", source, "-o", tmp_path / "busy.so"], check=True)
    busy = ctypes.CDLL(str(tmp_path / "busy.so")).busy

    def run() -> None:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            busy(ctypes.c_long(1_000_000))

    found = stack_sampler.attribute(stack_sampler.sample(sampler, run), own=tmp_path, profiler=profiler)
    assert found["samples"] > 20
    assert found["kinds"][0][0] == "own kernels"
    assert found["kinds"][0][1] > 0.8
    assert found["functions"][0][:2] == ["busy", "busy.so"]


def test_threads_that_did_nothing_are_not_used() -> None:
    before = native.Usage({1: 1.0, 2: 5.0, 3: 0.0}, 0, 0, 0, 0)
    after = native.Usage({1: 1.9, 2: 5.001, 3: 0.5, 4: 0.25}, 0, 0, 0, 0)
    assert native.busy_shares(before, after, 1.0) == pytest.approx([0.9, 0.5, 0.25])


def test_usage_of_this_process_is_read() -> None:
    usage = native.read_usage(os.getpid())
    assert usage.threads_s[os.getpid()] > 0
    assert usage.peak_memory_bytes >= usage.memory_bytes > 1 << 20


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=150), max_size=90))
def test_text_keeps_to_its_bounds(lines: list[str]) -> None:
    text = fit(lines)
    rows = text.split("\n")
    assert len(rows) <= MAX_LINES
    assert all(len(row) <= MAX_COLUMNS for row in rows)
    if len(lines) > MAX_LINES:
        assert rows[-1] == f"({len(lines) - MAX_LINES + 1} more lines)"


def test_quick_figures_stand_alone_and_beside_reasons() -> None:
    platform = load_platform("cpu")
    quick = {"bytes_moved_min": 1024, "torch_operators_claimed": [["aten::mul", 0.5]]}
    assert platform.profile_text(quick).splitlines() == [
        "bytes that the reference touches: 1,024 B",
        "torch operator (claimed): aten::mul 50%",
    ]
    assert platform.profile_text({"flops": 4096, "peak_copy_gb_per_s": 30.5}).splitlines() == [
        "measured peak bandwidth, copying: 30.5 GB/s",
        "floating-point operations: 4,096 FLOP (at least; arithmetic of every kind)",
    ]
    detail = {"absent": {"vectorization": "nothing was compiled by g++"}}
    assert platform.profile_text({**quick, "detail": detail}).splitlines()[-1] == (
        "not measured: vectorization: nothing was compiled by g++"
    )


def test_what_disturbs_is_told_and_page_faults_stand_once() -> None:
    platform = load_platform("cpu")
    quick = {"page_faults_per_call": 0.1, "others_cores_busy": 1.5}
    assert platform.profile_text(quick).splitlines() == [
        "cores that other programs kept busy: 1.5 (peaks, times and rates suffer)",
        "page faults a call: 0.1",
    ]
    assert platform.profile_text({"others_cores_busy": 0.2}) == ""
    calls = {
        "thread_busy_shares": [1.0], "wall_ms_per_call": 1.0, "processor_ms_per_call": 1.0, "threads_used": 1,
        "minor_page_faults_per_call": 0.125, "major_page_faults_per_call": 0.0, "process_memory_mib": 9,
        "process_peak_memory_mib": 9,
    }  # fmt: skip
    shown = platform.profile_text({**quick, "detail": {"calls": calls}}).splitlines()
    [faults] = [line for line in shown if "page faults" in line]
    assert faults.startswith("page faults a call: 0.125 minor")


def test_opencl_says_nothing_of_g_plus_plus() -> None:
    absent = {"vectorization": "nothing was compiled by g++", "calls": "it failed"}
    shown = load_platform("opencl").profile_text({"flops": 4096, "detail": {"absent": absent}})
    assert "not measured: calls: it failed" in shown and "g++" not in shown


def test_one_reason_for_several_parts_is_told_once_and_in_whole() -> None:
    reason = "the candidate failed while it was profiled: " + "the process ended by SIGABRT without an answer " * 2
    detail = {"absent": {"calls": reason, "processor_time": reason}}
    lines = load_platform("cpu").profile_text({"detail": detail}).splitlines()
    assert " ".join(line.strip() for line in lines) == f"not measured: calls, processor time: {reason.strip()}"
    assert all(len(line) <= MAX_COLUMNS for line in lines)


class Recording:
    """A sandbox that only notes what it was asked and answers with nothing."""

    name = "recording"
    promises: frozenset[Promise] = frozenset()

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def run(self, command: Command, **_: object) -> Completed:
        self.commands.append(command)
        time.sleep(0.05)
        return Completed(None, b"", b"", 3.25, timed_out=True)

    def describe(self) -> dict[str, str]:
        return {"name": self.name}


def test_only_a_passed_candidate_is_profiled_and_a_lost_profile_says_why() -> None:
    sandbox = Recording()
    task = task_from_source(OP, name="profiled")
    refused = Evaluation(Verdict.WRONG_OUTPUT, "wrong")
    assert with_detail(refused, task, "source", sandbox=sandbox, platform=load_platform("cpu")) is refused
    assert sandbox.commands == []
    passed = Evaluation(Verdict.PASSED, "right", profile={"flops": 7}, cost_s={"build": 1.0, "total": 9.0})
    found = with_detail(passed, task, "source", sandbox=sandbox, platform=load_platform("cpu"))
    assert [command.args for command in sandbox.commands] == [("profile", "cpu")]
    assert set(found.cost_s) == {"build", "profile", "total"}
    assert 0.05 <= found.cost_s["profile"] < 5
    assert found.cost_s["total"] == pytest.approx(9.0 + found.cost_s["profile"]), "budgets count the profile, too"
    assert found.profile["flops"] == 7
    detail = found.profile["detail"]
    assert (detail["schema"], detail["candidate"]) == (SCHEMA, candidate_hash("source"))
    assert list(detail["absent"]) == ["profile"]
    assert "wall time" in detail["absent"]["profile"]
    assert "not measured: profile: no verdict within" in load_platform("cpu").profile_text(dict(found.profile))
    assert Evaluation.from_json(found.to_json()) == found

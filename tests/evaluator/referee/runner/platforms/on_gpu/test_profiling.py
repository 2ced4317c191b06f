"""The runner's half of a profile on a GPU: programs with bounds, traces, and what compilers tell. No GPU is needed."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evaluator.referee.platforms.gpu.profiling import kernels
from evaluator.referee.runner.platforms.on_gpu.profiling import compiled, launches, programs


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_what_a_program_says_is_read_up_to_a_bound(tmp_path: Path) -> None:
    ended = programs.run(python("import sys; print('x' * 10**6); sys.stderr.write('a\\nlast')"), tmp_path, timeout_s=60)
    assert (ended.status, ended.cut, len(ended.log)) == (0, True, programs.LOG_BYTES)
    assert ended.errors == "a\nlast"
    script = "open('log', 'w').write('said'); print('by the candidate')"
    ended = programs.run(python(script), tmp_path, log="log", environment={"A": "b"}, timeout_s=60)
    assert (ended.log, ended.cut) == ("said", False)
    silent = programs.run(python(""), tmp_path, log="log", timeout_s=60)
    assert (silent.status, silent.log) == (0, ""), "what an earlier program said is gone"


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; words = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(words)\n"
        "open('pid', 'w').write(str(child.pid)); time.sleep(600)"
    )
    start = time.monotonic()
    ended = programs.run(python(script), tmp_path, timeout_s=2)
    assert ended.status is None and time.monotonic() - start < 30
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    deadline = time.monotonic() + 10
    while stat.exists() and stat.read_text().split(")")[-1].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not stat.exists() or stat.read_text().split(")")[-1].split()[0] == "Z"


def test_of_a_long_list_only_the_lines_that_matter_are_told(tmp_path: Path) -> None:
    script = "[print(f'other__{n}  Counter') for n in range(30000)]\n"
    script += "print('sm__warps_active  Counter'); print('\"dram__x\",1')"
    programs.run(python(script), tmp_path, timeout_s=60)
    lines, count = programs.lines_of(tmp_path, ["sm__warps_active", "dram__x"])
    assert lines == ["sm__warps_active  Counter", '"dram__x",1'] and count == 30_002


def test_programs_are_found_where_nvidias_installers_put_them(tmp_path: Path) -> None:
    assert programs.find("sh", tmp_path) is not None
    assert programs.find("no-such-program", tmp_path) is None
    for version in ("2024.3.2", "2025.3.0"):
        folder = tmp_path / "opt/nvidia/nsight-compute" / version
        folder.mkdir(parents=True)
        (folder / "no-such-program").write_text("#!/bin/sh\n")
        (folder / "no-such-program").chmod(0o755)
    assert programs.find("no-such-program", tmp_path) == str(folder / "no-such-program"), "the newest"


KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "own(float*)",
    "dur": 9.5,
    "args": {
        "registers per thread": 128,
        "shared memory": 13056,
        "blocks per SM": 0.72727275,
        "warps per SM": 2.909091,
        "grid": [8, 12, 1],
        "block": [128, 1, 1],
        "est. achieved occupancy %": 5,
        "stream": 7,
    },
}


def test_a_trace_tells_what_was_launched() -> None:
    copied = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "dur": 31, "args": {"bytes": 10}}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "dur": 99},
        KERNEL,
        copied,
        {"ph": "f", "cat": "kernel"},
    ]
    rows = launches.rows_of({"traceEvents": events})
    assert [row[:2] for row in rows] == [["Memcpy HtoD", 31.0], ["own(float*)", 9.5]]
    copy, own = kernels.read_launches(rows)
    assert (own["registers_per_thread"], own["shared_bytes"], own["estimated_occupancy_pct"]) == (128, 13056, 5)
    assert (own["grid"], own["block"], own["blocks_per_sm"]) == ([8, 12, 1], [128, 1, 1], 0.7273)
    assert "grid" not in copy
    assert launches.rows_of({}) == []
    odd = KERNEL | {"args": {"blocks per SM": float("inf"), "warps per SM": "many"}}
    assert launches.rows_of({"traceEvents": [odd]}) == [["own(float*)", 9.5, *[None] * 7]]


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_torchs_profiler_writes_a_trace_that_is_read_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert launches.observe(lambda: torch.ones(8) * 2, file) == [], "nothing ran on a GPU"
    assert not file.exists()


def test_libraries_with_code_for_gpus_are_those_of_the_candidates_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for path, content in (
        (home / "own one.so", b"\x7fELF...nv_fatbin"),
        (home / "host.so", b"\x7fELF"),
        (tmp_path / "torch.so", b"\x7fELF...nv_fatbin"),
    ):
        path.write_bytes(content)
    lines = [f"7f0000000000-7f0000001000 r-xp 00000000 00:21 7    {path}" for path in sorted(tmp_path.rglob("*.so"))]
    maps = "\n".join(
        [*lines, *lines, "7f0000000000-7f0000001000 rw-p 00000000 00:00 0", "7f0000000000-1 r 0 0 0 /gone"]
    )
    assert compiled.own_libraries(home, maps) == [home / "own one.so"]


def test_without_libraries_no_program_is_looked_for(tmp_path: Path) -> None:
    assert compiled.of_libraries(tmp_path, tmp_path) == {"libraries": 0, "found": False, "usage": ""}


def test_what_a_version_of_triton_does_not_tell_is_left_out() -> None:
    kernel = SimpleNamespace(name="scaled", n_regs=24, n_spills=2, metadata=SimpleNamespace(shared=128, num_warps=4))
    assert compiled.row_of(kernel) == ["scaled", 24, 2, 128, 4, None]
    assert kernels.read_triton([compiled.row_of(kernel)])[0]["spilled_bytes"] == 8


TRITON = """
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v / tl.sum(v), mask=at < n)
"""


@pytest.fixture
def compiled_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel that the installed Triton has compiled for a GPU, which no driver has loaded."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernel_of_test.py"
    path.write_text(TRITON)
    spec = importlib.util.spec_from_file_location("kernel_of_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(module.scaled, types, {"BLOCK": 1024})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 2})


@pytest.mark.triton
def test_kernels_of_triton_are_found_among_the_objects_of_the_process(compiled_kernel: Any) -> None:
    mine = ["scaled", 24, 0, compiled_kernel.metadata.shared, 8, 2]
    assert mine not in compiled.of_triton(), "one that is not loaded has not run"
    compiled_kernel.n_regs, compiled_kernel.n_spills = 24, 0  # which the driver tells when it loads a kernel
    assert mine in compiled.of_triton()


@pytest.mark.triton
def test_the_cuobjdump_that_triton_brings_prints_what_is_read(compiled_kernel: Any, tmp_path: Path) -> None:
    program = compiled._cuobjdump()
    if program is None:
        pytest.skip("this Triton brings no cuobjdump")
    (tmp_path / "kernel.cubin").write_bytes(compiled_kernel.asm["cubin"])
    words = [program, "--dump-resource-usage", str(tmp_path / "kernel.cubin")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    [found] = kernels.read_usage(said)
    assert found["kernel"] == "scaled" and found["registers"] > 0 and found["stack_bytes"] == 0

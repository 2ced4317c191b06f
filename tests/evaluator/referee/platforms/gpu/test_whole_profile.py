"""Whole profiles by the referee's part for GPUs, in a real sandbox.

The device is stood in for (`whole.py`), and so are NVIDIA's tools: scripts that take the tools' arguments and start the
process that calls the candidate, as the tools do.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluator.platforms.gpu.profile_text import profile_text
from sandbox.base import Command, Limits
from sandbox.process.sandbox import ProcessSandbox
from tests.platforms.kits import CPU, OP

NCU = """
import subprocess, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.0.0 (build 1) (public-release)")
elif "--query-metrics" in words:
    if "occupancy" in words:
        sys.exit(1)
    launch = ["launch__" + each for each in
        ("registers_per_thread", "occupancy_limit_registers", "occupancy_limit_blocks", "occupancy_limit_shared_mem")]
    hardware = ["sm__warps_active", "dram__bytes_op_read", "dram__throughput", "lts__t_sector_hit_rate"]
    hardware += ["smsp__warp_issue_stalled_long_scoreboard_per_warp_active", "sm__inst_executed"]
    for name in launch if "launch" in words else hardware:
        print(f"{name:80} Counter  pct  some words")
    for number in range(30):
        print(f"other__{number}  Counter")
else:
    at = words.index("--log-file")
    assert words[:at][-2] == "--metrics" and "--profile-from-start" in words, words
    asked = words[at - 1].split(",")
    status = subprocess.run(words[at + 2:]).returncode
    head = ["ID", "Process ID", "Kernel Name", "Block Size", *asked]
    with open(words[at + 1], "w") as log:
        print("==PROF== Connected to process 7", file=log)
        if status == 0:
            print(",".join(f'"{each}"' for each in head), file=log)
            units = ["ns" if each.startswith("gpu__time") else "" for each in asked]
            print(",".join(f'"{each}"' for each in ["", "", "", "", *units]), file=log)
            for time in (1000, 3000):
                values = [f"{time:,}" if each.startswith("gpu__time") else str(time / 100) for each in asked]
                print(",".join(f'"{each}"' for each in ["0", "7", "own(float*)", "(256, 1, 1)", *values]), file=log)
    sys.exit(status)
"""
REFUSED = """
import sys
words = sys.argv[1:]
if "--log-file" in words:
    with open(words[words.index("--log-file") + 1], "w") as log:
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters", file=log)
    sys.exit(1)
"""
HANGING = "import sys, time\nif '--log-file' in sys.argv: time.sleep(600)\n"
GARBAGE = """
import os, sys
if "--log-file" in sys.argv:
    with open(sys.argv[sys.argv.index("--log-file") + 1], "wb") as log:
        log.write(b'"ID","Kernel Name","gpu__time_duration.sum"\\n' + os.urandom(1 << 20) + b"\\n\\x1b[31m" * 1000)
"""
UNKNOWN = """
import sys
words = sys.argv[1:]
if "--log-file" in words:
    at = words.index("--log-file")
    bad = "sm__warps_active"
    asked = words[at - 1].split(",")
    with open(words[at + 1], "w") as log:
        if any(each.startswith(bad) for each in asked):
            print(f"==ERROR== Failed to find metric regex:^{bad}\\\\.(sum|avg)$", file=log)
            sys.exit(1)
        print(",".join(f'"{each}"' for each in ["ID", "Kernel Name", *asked]), file=log)
        print(",".join(f'"{each}"' for each in ["0", "own", *["7"] * len(asked)]), file=log)
"""
SANITIZER = """
import subprocess, sys
words = sys.argv[1:]
at = words.index("--log-file")
tool = words[words.index("--tool") + 1]
status = subprocess.run(words[at + 2:]).returncode
with open(words[at + 1], "w") as log:
    print("========= COMPUTE-SANITIZER", file=log)
    if status:
        sys.exit(status)
    if tool == "memcheck":
        print("========= Invalid __global__ read of size 4 bytes", file=log)
        print("=========     at own(float *)+0x70 in kernel.cu:41", file=log)
        print("=========     by thread (31,0,0) in block (1,0,0)", file=log)
    name, count = ("RACECHECK", "0 hazards displayed") if tool == "racecheck" else ("ERROR", "0 errors")
    print(f"========= {name} SUMMARY: {'1 error' if tool == 'memcheck' else count}", file=log)
    sys.exit(86 if tool == "memcheck" else 0)
"""
# Its own weights are zeros: where it runs in a process of its own, it is given those of the runner.
STRICT = CPU.right.replace("torch.rand(features) + 0.5", "torch.zeros(features)")
STRICT = STRICT.replace("def forward(self, x):", "def forward(self, x):\n        assert bool((self.weight != 0).all())")


def profiled(
    sandbox: ProcessSandbox, package: Path, programs: dict[str, str], *, candidate: str = STRICT, **more: Any
) -> dict[str, Any]:
    asked = {"task_source": OP, "candidate_source": candidate, "measure_budget_s": 100, **more}
    told = {"mode": "profile", "programs": programs, "memory_mb": 3072, **asked}
    done = sandbox.run(Command(package, stdin=json.dumps(told).encode(), limits=Limits(memory_mb=3072, wall_s=300)))
    assert done.exit_code == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    lines = profile_text({"gpu": {}, "detail": found}).splitlines()
    assert len(lines) <= 60 and all(len(line) <= 100 and line.isprintable() for line in lines)
    return found


def test_counters_come_from_a_call_in_a_process_of_its_own(process_sandbox: ProcessSandbox, package: Path) -> None:
    found = profiled(process_sandbox, package, {"ncu": NCU})
    counters = found["counters"]
    assert counters["source"].startswith("Nsight Compute 2025.3.0.0, claimed")
    assert counters["launches"] == 2 and counters["time_us"] == 4.0
    assert counters["memory"]["dram__bytes_op_read.sum"] == 40.0, "a sum"
    assert counters["occupancy"]["sm__warps_active.avg.pct_of_peak_sustained_active"] == 25.0, "a mean by time"
    assert counters["occupancy"]["launch__registers_per_thread"] == 30.0, "that of the longest"
    assert "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct" in found["absent"]["metrics"]
    assert "dram__bytes_write.sum" in found["absent"]["metrics"]
    assert found["kernels_claimed"] == [["own(float*)", 0.5], ["Memcpy DtoD (Device -> Device)", 0.5]]
    assert found["kernels"]["kernels"][0]["registers_per_thread"] == 40
    assert found["kernels"]["kernels"][0]["launches"] == 2
    assert "compiled" in found["absent"] and "sanitizer" not in found["absent"]


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "install Nsight Compute"),
        ({"ncu": REFUSED}, "NVreg_RestrictProfilingToAdminUsers=0"),
        ({"ncu": GARBAGE}, "told no table"),
    ],
    ids=["missing", "refused", "garbage"],
)
def test_without_counters_the_rest_stands_alone(
    process_sandbox: ProcessSandbox, package: Path, programs: dict[str, str], reason: str
) -> None:
    found = profiled(process_sandbox, package, programs)
    assert reason in found["absent"]["counters"] and "counters" not in found
    assert found["kernels"]["kernels"]


def test_a_program_that_hangs_is_ended_with_the_budget(process_sandbox: ProcessSandbox, package: Path) -> None:
    found = profiled(process_sandbox, package, {"ncu": HANGING}, measure_budget_s=15)
    assert "did not end within" in found["absent"]["counters"]
    assert found["cost_s"]["total"] < 60


def test_a_name_that_turns_out_to_be_unknown_costs_that_metric_alone(
    process_sandbox: ProcessSandbox, package: Path
) -> None:
    found = profiled(process_sandbox, package, {"ncu": UNKNOWN})
    assert found["absent"]["metrics"].endswith(": sm__warps_active.avg.pct_of_peak_sustained_active")
    assert found["counters"]["memory"]["dram__bytes_read.sum"] == 7


def test_the_sanitizer_runs_on_request(process_sandbox: ProcessSandbox, package: Path) -> None:
    found = profiled(process_sandbox, package, {"compute-sanitizer": SANITIZER}, sanitize=True)
    assert found["sanitizer"]["errors"] == [["memcheck", 1], ["racecheck", 0], ["initcheck", 0], ["synccheck", 0]]
    [row] = found["sanitizer"]["findings"]
    assert (row["tool"], row["kind"], row["where"]) == ("memcheck", "invalid access", "kernel.cu:41")


def test_a_sanitizer_that_is_missing_or_ends_badly_is_named(process_sandbox: ProcessSandbox, package: Path) -> None:
    found = profiled(process_sandbox, package, {}, sanitize=True)
    assert "install NVIDIA's CUDA toolkit" in found["absent"]["sanitizer"]
    failing = {"compute-sanitizer": "import sys\nsys.exit('no device')"}
    found = profiled(process_sandbox, package, failing, sanitize=True)
    assert "status 1" in found["absent"]["sanitizer_memcheck"] and "no device" in found["absent"]["sanitizer_memcheck"]


# What Triton keeps of a kernel that it has compiled and loaded, under the names that it has there.
OF_TRITON = """
import sys, types


class CompiledKernel:
    name, n_regs, n_spills = "own", 40, 2
    metadata = types.SimpleNamespace(shared=2048, num_warps=8, num_stages=3)


sys.modules["triton.compiler.compiler"] = types.SimpleNamespace(CompiledKernel=CompiledKernel)
KEPT = [CompiledKernel()]
"""


def test_what_triton_compiled_is_told(process_sandbox: ProcessSandbox, package: Path) -> None:
    found = profiled(process_sandbox, package, {}, candidate=STRICT + OF_TRITON)
    assert "compiled" in found, found["absent"]
    [kernel] = found["compiled"]["kernels"]
    assert (kernel["registers"], kernel["spilled_bytes"], kernel["shared_bytes"]) == (40, 8, 2048)
    assert (kernel["warps"], kernel["stages"], kernel["compiler"]) == (8, 3, "triton")


def test_a_candidate_that_fails_has_reasons_for_every_part(process_sandbox: ProcessSandbox, package: Path) -> None:
    failing = CPU.right.replace("def forward(self, x):", "def forward(self, x):\n        raise RuntimeError('no')")
    found = profiled(process_sandbox, package, {"ncu": NCU}, candidate=failing)
    assert {"kernels", "compiled", "counters"} <= found["absent"].keys()
    assert "RuntimeError: no" in found["absent"]["counters"]

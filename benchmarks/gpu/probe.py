"""Asks this host's GPU what no documentation says: `python -m benchmarks.gpu.probe` writes results/gpu_probe.json.

It needs torch and the standard library. Without a GPU it says so, writes nothing and ends with status 3. Each question
has a process and a time limit of its own, and the file is written anew after each answer. Most are asked by
`benchmarks/gpu/inside` in the process sandbox, with the referee's own classes and a runner's user.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluator.platforms import load_platform
from evaluator.platforms.gpu.driver import gpu_at, library_folders, nodes_of
from evaluator.referee.protocol.nvml import Gpu, NvmlError, opened
from evaluator.referee_process import REFEREE
from sandbox.base import Command, Limits
from sandbox.process.sandbox import ProcessSandbox

RESULTS = Path(__file__).parents[1] / "results"
NO_GPU = 3  # exit status
_INSIDE = Path(__file__).parent / "inside"
_UID = 20001
_TINY = """
#include <cstdio>
__global__ void k(float *x) { x[threadIdx.x] = threadIdx.x; }
int main() {
    float *x;
    if (cudaMalloc(&x, 1024)) return 2;
    k<<<1, 32>>>(x);
    return cudaDeviceSynchronize() ? 3 : 0;
}
"""
_NUMBERS = (
    "nvmlDeviceGetMinorNumber", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerUsage",
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question: its name, what is asked in words, and how long the answer may take."""

    name: str
    text: str
    limit_s: float
    ask: Callable[[int], dict[str, Any]]


def device_files(device: int) -> dict[str, Any]:
    """The device files that a sandbox is shown, their owners and modes, and where the driver's libraries lie."""
    gpu = found(device)
    seen = {}
    for node in nodes_of(gpu):
        try:
            told = Path(node).stat()
            seen[node] = [oct(told.st_mode), told.st_uid, told.st_gid]
        except OSError as error:
            seen[node] = [str(error)]
    return {"files": seen, "libraries": library_folders(), "gpu": asdict(gpu)}


def management(device: int) -> dict[str, Any]:
    """What NVML tells, by the project's session and function by function."""
    gpu = found(device)
    with opened() as nvml:
        told: dict[str, Any] = {"state": asdict(nvml.state(gpu.uuid))}
        handle = nvml._by_uuid(gpu.uuid)
        told["numbers"] = {name: nvml._number(name, handle) for name in _NUMBERS}
        try:
            told["users"] = [asdict(each) for each in nvml.users(gpu.uuid)]
        except NvmlError as error:
            told["users"] = str(error)
    start = time.perf_counter()
    with opened() as nvml:
        nvml.state(gpu.uuid)
    return {**told, "a_look_ms": round((time.perf_counter() - start) * 1e3, 2), "own_pid": os.getpid()}


def profilers(device: int) -> dict[str, Any]:
    """Whether ncu and compute-sanitizer work on a small program, as root and as another user."""
    nvcc, told = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        source, program = Path(folder) / "tiny.cu", Path(folder) / "tiny"
        source.write_text(_TINY)
        subprocess.run([nvcc, "-arch=native", "-o", program, source], check=True, capture_output=True)
        program.chmod(0o755)
        tools = {
            "ncu": ["--clock-control", "none", "--metrics", "gpu__time_duration.sum"],
            "compute-sanitizer": ["--error-exitcode", "9"],
        }
        for tool, arguments in tools.items():
            path = shutil.which(tool) or f"/usr/local/cuda/bin/{tool}"
            for who in (None, _UID) if os.geteuid() == 0 else (None,):
                start, own = time.perf_counter(), Path(folder) / f"{tool}-{who}"  # ncu locks a file in its folder
                own.mkdir()
                own.chmod(0o777)
                try:
                    done = subprocess.run(
                        [path, *arguments, program],
                        capture_output=True,
                        text=True,
                        check=False,
                        timeout=30,
                        cwd=own,
                        env={**os.environ, "HOME": str(own), "TMPDIR": str(own)},
                        user=who,
                        group=who,
                        extra_groups=None if who is None else [],
                    )
                    answer: list[Any] = [done.returncode, (done.stdout + done.stderr)[-300:]]
                except (OSError, subprocess.SubprocessError) as error:
                    answer = [str(error)[:300]]
                told[f"{tool} as {'this user' if who is None else who}"] = [
                    *answer, round(time.perf_counter() - start, 2)
                ]  # fmt: skip
    return told


def inside(name: str) -> Callable[[int], dict[str, Any]]:
    """Have `inside` answer in the process sandbox."""

    def ask(device: int) -> dict[str, Any]:
        platform, start = load_platform("triton", device), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / _INSIDE.name
            shutil.copytree(_INSIDE, package)
            shutil.copytree(REFEREE, package / "referee", ignore=shutil.ignore_patterns("__pycache__"))
            limits = Limits(wall_s=60.0, memory_mb=16384, disk_mb=1024)
            devices = platform.sandbox_devices(device)
            command = Command(package, args=(name, platform.part), limits=limits, devices=devices)
            sandbox = ProcessSandbox()
            done = sandbox.run(command)
        seconds = {"sandbox": sandbox.describe(), "all_s": round(time.perf_counter() - start, 2)}
        try:
            return {**json.loads(done.stdout.splitlines()[-1]), **seconds}
        except (ValueError, IndexError, TypeError):
            said = done.stderr.decode("utf-8", "replace")[-2000:]
            return {"error": f"status {done.exit_code}, timed out: {done.timed_out}", "says": said, **seconds}

    return ask


QUESTIONS = (
    Question(
        "device_files", "Are the device files there, and for whom? Where are the driver's libraries?", 10, device_files
    ),
    Question("nvml", "What does NVML tell?", 10, management),
    Question(
        "starts",
        "Does the driver start in the sandbox, how long does it take, what does it leave?",
        40,
        inside("starts"),
    ),
    Question(
        "shared", "May a process of another user open memory by a file descriptor, and keep it?", 50, inside("shared")
    ),
    Question("forks", "Does importing torch.compile before a fork leave the GPU usable?", 70, inside("forks")),
    Question("idle", "What does an idle device's probe take, beside what others have there?", 60, inside("idle")),
    Question("costs", "What do the referee's own steps take?", 50, inside("costs")),
    Question("tools", "Which compilers does a candidate find?", 50, inside("tools")),
    Question("legacy", "May a process of another user open CUDA's interprocess memory?", 50, inside("legacy")),
    Question("profilers", "Do ncu and compute-sanitizer work, and for whom?", 150, profilers),
)


def found(device: int) -> Gpu:
    """The GPU.

    Raises:
        OSError: there is none.
    """
    gpu = gpu_at(device)
    if gpu is None:
        raise OSError(f"no NVIDIA driver answers for GPU {device}")
    return gpu


def answered(question: Question, device: int) -> dict[str, Any]:
    """The answer of a process of its own, and the seconds that it took."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.gpu.probe", "--device", str(device), "--ask", question.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=question.limit_s)
        answer = read(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        answer = {"error": f"no answer within {question.limit_s:g} s"}
    return row(question, answer, time.perf_counter() - start)


def read(stdout: str, stderr: str) -> Any:
    """The last line of what a process has answered, or why there is none."""
    try:
        return json.loads(stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "no answer", "says": stderr[-2000:]}


def row(question: Question, answer: Any, seconds: float) -> dict[str, Any]:
    """One entry of the file."""
    return {"question": question.text, "name": question.name, "answer": answer, "seconds": round(seconds, 2)}


def chosen(names: Iterable[str] | None) -> list[Question]:
    """The questions of these names, or all.

    Raises:
        ValueError: there is no question of a name.
    """
    if names is None:
        return list(QUESTIONS)
    known = {question.name: question for question in QUESTIONS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no question {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names]


def main() -> int:
    """Ask; exit status 3 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0, help="which GPU, in the order of the bus")
    parser.add_argument("--only", nargs="*", help=f"questions: {', '.join(each.name for each in QUESTIONS)}")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if gpu_at(options.device) is None:
        text = f"no NVIDIA driver answers for GPU {options.device}: nothing was asked, nothing was written"
        print(text, file=sys.stderr)
        return NO_GPU
    if options.ask:
        [question] = chosen([options.ask])
        print(json.dumps(question.ask(options.device), default=str))
        return 0
    rows = []
    for number, question in enumerate(chosen(options.only), 1):
        rows.append({"number": number, **answered(question, options.device)})
        print(json.dumps(rows[-1]), flush=True)
        (RESULTS / "gpu_probe.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

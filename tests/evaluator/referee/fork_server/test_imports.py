"""What is imported before a fork asks no GPU anything: a process that is forked afterwards could not use it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json, os, sys
from evaluator.referee.fork_server import imports
from evaluator.referee.runner.platforms.cpu.imports import CpuImports
from evaluator.referee.runner.platforms.on_gpu.imports import OnGpuImports

asked, seen = [], []
part = sys.argv[1]


def asking(name):
    def ask(*_, **__):
        asked.append(name)
        raise RuntimeError("no GPU")

    return ask


class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.utils.cpp_extension":
            seen.append(torch.cuda.is_available())  # as torch's builder of extensions asks when it is imported


sys.meta_path.insert(0, Watch())
before = OnGpuImports.before_torch if "@" in part else CpuImports.before_torch


def before_torch(self):
    global torch
    before(self)
    import torch

    # As torch with CUDA and NVML's check: whether there is a GPU is told by the environment, and nothing else is free.
    torch.cuda.is_available = lambda: bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    torch.cuda.device_count = lambda: int(torch.cuda.is_available())
    for name in ("_lazy_init", "get_device_properties", "get_device_capability", "current_device"):
        setattr(torch.cuda, name, asking(name))
    torch.cuda.random._lazy_init = torch.cuda._lazy_init
    if "@" in part:
        # It asks CUDA's runtime how many GPUs there are, and where none is seen it switches the guard of devices off.
        torch._C._ensureCUDADeviceGuardSet = asking("_ensureCUDADeviceGuardSet")


if "@" in part:
    OnGpuImports.before_torch = before_torch
else:
    CpuImports.before_torch = before_torch
imports.import_torch(part)
imports.import_compiler(part)
there = "torch._inductor.compile_fx" in sys.modules
print(json.dumps([asked, seen, os.environ["CUDA_VISIBLE_DEVICES"], there]))
"""


def found(part: str) -> list[Any]:
    command = [sys.executable, "-c", SCRIPT, part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_on_a_gpu_the_compiler_is_imported_and_asks_it_nothing() -> None:
    assert found("cuda@GPU-a") == [[], [False], "GPU-a", True]


def test_where_candidates_run_on_the_processor_torch_sees_no_gpu() -> None:
    assert found("cpu") == [[], [False], "", True]

"""What is imported before a fork asks no GPU anything: a process that is forked afterwards could not use it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-a"
import torch
from torch.utils import _triton
from evaluator.referee.fork_server import imports
from evaluator.referee.runner.platforms.cpu.imports import CpuImports

asked = []
seen = []


def asking(name):
    def ask(*_, **__):
        asked.append(name)
        raise RuntimeError("no GPU")

    return ask


# As torch with CUDA and NVML's check: whether there is a GPU is told by the environment, and nothing else is free.
torch.cuda.is_available = lambda: bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
torch.cuda.device_count = lambda: int(torch.cuda.is_available())
for name in ("_lazy_init", "get_device_properties", "get_device_capability", "current_device"):
    setattr(torch.cuda, name, asking(name))
torch.cuda.random._lazy_init = torch.cuda._lazy_init
CpuImports.look_up_compiler = lambda self: None
CpuImports.before_torch = lambda self: None
CpuImports.after_torch = lambda self: seen.append(torch.cuda.is_available())  # as torch's builder of extensions asks
imports.import_torch("cpu")
imports.import_compiler("cpu")
cached = [name for name, each in vars(_triton).items() if hasattr(each, "cache_info") and each.cache_info().currsize]
visible, there = os.environ["CUDA_VISIBLE_DEVICES"], "torch._inductor.compile_fx" in sys.modules
print(json.dumps([asked, seen, cached, visible, there]))
"""


def test_importing_the_compiler_asks_no_gpu_and_keeps_no_answer_about_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[], [False], [], "GPU-a", True]

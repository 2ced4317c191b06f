"""A whole model through `manual/`, answered with kernels that were written by hand.

Run: python -m benchmarks.by_hand [decoder]
`MODEL/REGION.py` beside this file is the reply for a region. Any other region is answered with its own code, so that
nothing is gained there. Writes benchmarks/results/by_hand.md.
"""

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.whole_models import in_libraries, what_is_told
from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "benchmarks" / "results" / "by_hand.md"
REGION = re.compile(r'"""(r\d+_\w+) of .*?(?=\n```|\n</)', re.DOTALL)
REPEATS = 200
ABOUT = """# Kernels by hand

A whole model through `manual/` (docs/agents.md): `python -m benchmarks.by_hand` answers the prompts of
`kernelwright model` with the kernels of `benchmarks/by_hand/`. The first table is the proof of what is delivered.

The second is of one region, not by the referee: medians of calls that alternate in one process, in which every call
follows one of the same code. *products*: the region's linear layers alone, as torch computes them. What torch.compile
takes beyond its products is all that a kernel could gain that leaves them to torch.
"""


def reply(prompt: str, model: str) -> str:
    """The kernel for the region that a prompt is about; the region's own code where there is none."""
    found = REGION.search(prompt)
    if found is None:
        raise SystemExit("a prompt names no region")
    path = HERE / model / f"{found[1]}.py"
    return path.read_text() if path.exists() else found[0].replace("class Model(", "class ModelNew(")


def answer(inbox: Path, model: str, done: threading.Event, tasks: dict[str, str]) -> None:
    """Answer prompts until `done`; `tasks` receives the regions' task files."""
    while not done.wait(0.2):
        for path in sorted(inbox.glob("*.prompt.md")):
            to = path.with_name(path.name.replace(".prompt.md", ".reply.py"))
            if to.exists():
                continue
            prompt = path.read_text()
            if found := REGION.search(prompt):
                tasks[found[1]] = found[0]
            whole = to.with_suffix(".new")
            whole.write_text(reply(prompt, model))
            whole.rename(to)


def optimize(path: Path, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What a run says, and the regions' tasks by name."""
    inbox, done, tasks = folder / "inbox", threading.Event(), dict[str, str]()
    inbox.mkdir()
    thread = threading.Thread(target=answer, args=(inbox, path.stem, done, tasks))
    thread.start()
    command = [sys.executable, "-m", "service.cli", "model", str(path), "--model", f"manual/{inbox}", "--rounds", "1"]
    start = time.perf_counter()
    try:
        ran = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=False, cwd=ROOT)
    finally:
        done.set()
        thread.join()
    return what_is_told(json.loads(ran.stdout)) | {"wall_s": time.perf_counter() - start}, tasks


def load(path: Path) -> Any:
    """A file's module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def medians_ms(task: Any, kernel: Any) -> dict[str, float]:
    """The median time of a call of the region under eager, torch.compile and with the kernel, and of its products."""
    model, ours, inputs = task.Model(), kernel.ModelNew(), task.get_inputs()
    ours.load_state_dict(model.state_dict())
    products: list[tuple[torch.Tensor, ...]] = []
    linear = torch.nn.functional.linear

    def recorded(*arguments: torch.Tensor) -> torch.Tensor:
        products.append(tuple(each.detach().clone() for each in arguments))
        return linear(*arguments)

    with torch.no_grad():
        with mock.patch.object(torch.nn.functional, "linear", recorded):
            model(*inputs)
        compiled = torch.compile(model, dynamic=False)
        variants: dict[str, Callable[[], Any]] = {
            "eager": lambda: model(*inputs),
            "torch.compile": lambda: compiled(*inputs),
            "with the kernel": lambda: ours(*inputs),
            "products": lambda: [linear(*each) for each in products],
        }
        spent: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(REPEATS):
            for name, call in variants.items():
                call()
                start = time.perf_counter()
                call()
                spent[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) * 1e3 for name, each in spent.items()}


def report(model: str, found: dict[str, Any], regions: dict[str, dict[str, float]]) -> str:
    """The page."""
    proof = found["proof"]
    lines = [ABOUT, f"Device: {load_platform('cpu').device().name}. Referee: `{harness_hash()[:12]}`.", ""]
    lines += [f"## {model}", "", "| | ms a call | speedup over it (95 %) |", "|---|---|---|"]
    for name, told in (("eager", "eager"), ("compile", "torch.compile"), ("candidate", "delivered")):
        over = (proof["speedup"] or {}).get(name)
        span = f"{over['value']:.2f} ({over['low']:.2f}-{over['high']:.2f})" if over else ""
        lines.append(f"| {told} | {proof['latency_ms'][name]['median']:.2f} | {span} |")
    lines += [
        "",
        f"{proof['verdict']}, {', '.join(proof['tags'])}; kept: {', '.join(found['kept'])}; {found['wall_s']:.0f} s. "
        f"Of a call under torch.compile {in_libraries(found)} are in torch's libraries.",
    ]
    for name, medians in regions.items():
        lines += ["", f"### {name}", "", "| | ms a call |", "|---|---|"]
        lines += [f"| {each} | {value:.3f} |" for each, value in medians.items()]
        rest = medians["torch.compile"] - medians["products"]
        ours = medians["with the kernel"] - medians["products"]
        told = f"{rest / ours:.2f} times less" if ours > 0 else f"none: it is {-ours:.3f} ms faster than these alone"
        lines += ["", f"Beyond torch's products torch.compile takes {rest:.3f} ms, and the kernel {told}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="decoder", help="a file of examples/models")
    name = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        found, tasks = optimize(ROOT / "examples" / "models" / f"{name}.py", Path(folder))
        if not found["kept"]:
            raise SystemExit(f"nothing was delivered: {json.dumps(found)[:2000]}")
        regions = {}
        for region in found["kept"]:
            path = Path(folder) / f"{region}.py"
            path.write_text(tasks[region])
            regions[region] = medians_ms(load(path), load(HERE / name / f"{region}.py"))
    PAGE.write_text(report(name, found, regions))
    print(PAGE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

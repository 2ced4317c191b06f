"""Does a speedup repeat? The reference against itself, and against itself with 5 % of extra time, on four ops.

Run: python benchmarks/repeatability.py [--evaluations 20] [--load]
Writes benchmarks/results/repeatability.json (resumable: evaluations that are in it are not run again) and
repeatability.md. `--load` runs the same with one core kept busy by another program.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash, prepare_referee
from sandbox.base import Command
from sandbox.docker.sandbox import DockerSandbox
from tasks.load import task_from_source

RESULTS = Path(__file__).parent / "results"
USUAL_WAY = Path(__file__).parent / "usual_way"
EXTRA = 0.05
FALSE_WIN = 1.03

# Name, what is computed, the shapes of its inputs, and a guess at what a call's time holds besides the model's in
# seconds (docs/timing.md; 0.3 ms is too much by now): about 0.05, 1 and 10 ms on 2 cores, and one whose 64 MB do not
# fit a cache.
SOFTMAX = "torch.softmax({} * 1.5, dim=-1)"
OPS: dict[str, tuple[str, list[tuple[int, ...]], float]] = {
    "0.05 ms": (SOFTMAX, [(64, 512)], 95e-6),
    "1 ms": (SOFTMAX, [(2048, 1024)], 300e-6),
    "10 ms": ("torch.tanh({} @ {})", [(1024, 1024), (1024, 1024)], 300e-6),
    "32 MB in and out": (SOFTMAX, [(8192, 1024)], 300e-6),
}

OP = """import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, {names}):
        return {work}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

# Works for a share of the call's time; most of that the working thread measures, so that it is right on any machine.
SLOWER = """import time
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, {names}):
        start = time.perf_counter()
        y = {work}
        end = time.perf_counter()
        end += {extra} * (end - start + {handover_s})
        while time.perf_counter() < end:
            pass
        return y
"""


def sources(label: str) -> tuple[str, str]:
    """The op, and the same as a candidate."""
    work, shapes, _ = OPS[label]
    names = [f"x{number}" for number in range(len(shapes))]
    inputs = ", ".join(f"torch.randn{shape}" for shape in shapes)
    reference, same = (
        OP.format(name=name, names=", ".join(names), work=work.format(*names), inputs=inputs)
        for name in ("Model", "ModelNew")
    )
    return reference, same


def slower_source(label: str, extra: float) -> str:
    """A candidate that takes longer than the op by this share."""
    work, shapes, handover_s = OPS[label]
    names = [f"x{number}" for number in range(len(shapes))]
    return SLOWER.format(names=", ".join(names), work=work.format(*names), extra=extra, handover_s=handover_s)


def measure(sandbox: DockerSandbox, kind: str, label: str, cache: BuildCache) -> dict[str, Any]:
    """One evaluation and, beside it, the usual way."""
    reference, same = sources(label)
    candidate = slower_source(label, EXTRA) if kind == "5 % slower" else same
    effort = Effort(baselines=("eager",))
    prepare_referee("evaluate", load_platform("cpu"), device=0, sandbox=sandbox, limits=effort.limits())
    task = task_from_source(reference, name="repeatability", where="repeatability")
    found = evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort, cache=cache)
    request = json.dumps({"reference": reference, "candidate": candidate}).encode()
    usual = json.loads(sandbox.run(Command(USUAL_WAY, stdin=request)).stdout)["speedup"]
    if found.speedup is None:
        raise SystemExit(f"{kind}, {label}: {found.verdict}: {found.message}")
    interval = found.speedup["eager"]
    return {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "usual": usual,
        "eager_ms": found.latency_ms["eager"].median,
        "noisy": "noisy" in found.tags,
        "uneven": "uneven" in found.tags,
        "timing_s": found.cost_s["timing"],
        "samples_ms": found.profile["samples_ms"],
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """One line of the table."""
    op, _, rest = name.partition(", ")
    slower = "slower" in rest
    truth = 1 / (1 + EXTRA) if slower else 1.0
    off = [abs(run["value"] / truth - 1) for run in runs]
    usual = [abs(run["usual"] / truth - 1) for run in runs]
    found = [run["high"] < 1.0 for run in runs] if slower else [run["low"] <= 1.0 <= run["high"] for run in runs]
    wins = sum(run["low"] > 1.0 and run["value"] > FALSE_WIN and not run["noisy"] for run in runs)
    usual_wins = sum(run["usual"] > FALSE_WIN for run in runs)
    cells = [
        op,
        rest,
        f"{quantile([run['eager_ms'] for run in runs], 0.5):.3f}",
        str(len(runs)),
        f"{quantile(off, 0.5):.2%} / {quantile(off, 0.95):.2%}",
        f"{sum(found)} of {len(runs)}",
        str(wins),
        str(sum(run["noisy"] for run in runs)),
        str(sum(run["uneven"] for run in runs)),
        f"{quantile([run['timing_s'] for run in runs], 0.5):.1f}",
        f"{quantile(usual, 0.5):.2%} / {quantile(usual, 0.95):.2%}",
        str(usual_wins),
    ]
    return "| " + " | ".join(cells) + " |"


COLUMNS = (
    "op", "candidate", "eager ms", "runs", "off by (median, 95 %)", "found", "false wins", "noisy", "uneven",
    "timing s", "usual way, off by", "its false wins",
)  # fmt: skip
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
ABOUT = """# Does a speedup repeat?

The reference as its own candidate, and with 5 % of extra time a call. *found*: the interval holds 1.0 (the same) or
lies below it (slower). *false wins*: a speedup of more than 3 % whose interval lies above 1.0, with no warning of
noise. *noisy*, *uneven*: so tagged, and without a rank. *usual way*: reference first, candidate after, mean of 100
calls, one process, same image, same minute.

A candidate can measure its own work only, so what else a call takes is a guess in `OPS` of which 5 % are added, too:
with 0.3 ms for the op of 1 ms, where 0.1 ms would be right, the extra time is nearer to 6 %.

Command: `python benchmarks/repeatability.py`, and `--load` for the rows with a second program that keeps one core busy.
"""


def report(data: dict[str, Any]) -> str:
    """The page with the table."""
    lines = [ABOUT, f"Device: {data['device']}. Referee: `{data['harness'][:12]}`.", "", HEADER]
    lines += [row(name, runs) for name, runs in sorted(data["runs"].items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--load", action="store_true", help="keep one core busy with another program meanwhile")
    parser.add_argument("--only", nargs="*", help="ops to run, such as '1 ms'")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "repeatability.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    ops = {label: [*sources(label), slower_source(label, EXTRA)] for label in OPS}
    if (data.get("harness"), data.get("ops")) != (harness_hash(), ops):  # other rules or ops, other results
        data = {"harness": harness_hash(), "ops": ops, "device": load_platform("cpu").device().name, "runs": {}}
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    cache = BuildCache(RESULTS / ".cache")
    kinds = ["the same, one core busy"] if options.load else ["the same", "5 % slower"]
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.load else None
    try:
        for label in OPS:
            if options.only and label not in options.only:
                continue
            for kind in kinds:
                runs = data["runs"].setdefault(f"{label}, {kind}", [])
                while len(runs) < options.evaluations:
                    runs.append(measure(sandbox, kind, label, cache))
                    last = runs[-1]
                    print(
                        f"{label}, {kind}: {last['value']:.4f} ({last['low']:.4f}-{last['high']:.4f}) in "
                        f"{last['timing_s']:.1f} s; usual {last['usual']:.4f}; eager {last['eager_ms']:.3f} ms",
                        file=sys.stderr,
                    )
                    path.write_text(json.dumps(data))
    finally:
        if burner is not None:
            burner.kill()
        sandbox.close()
    (RESULTS / "repeatability.md").write_text(report(data))
    print(report(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())

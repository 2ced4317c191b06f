"""Whole models with a model that writes kernels: each optimized once, and the table of what came of it.

Run: python -m benchmarks.whole_models [--model builtin/compiler] [--rounds 3] [--only NAME ...] [--again]
Writes benchmarks/results/whole_models.json (resumable: models that are in it are not run again, unless `--again` says
so) and whole_models.md. Each row says which referee measured it, on which device.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
FILES = sorted([*(ROOT / "examples" / "models").glob("*.py"), *(ROOT / "benchmarks" / "models").glob("*.py")])
ABOUT = """# Whole models

Each model of `examples/models/` and `benchmarks/models/` by one `kernelwright model` (docs/models.md). Times are those
of the proof: one evaluation of what is delivered, against eager and torch.compile of the whole model. *kept*: regions
whose kernels are in the delivered model, of those that had a job. Where it is 0, the proof found torch.compile faster
or no region was faster than eager: the run delivers nothing, and the means leave the model out, as they do one that
is missing here because it was not run. The last column says which referee measured a row, on which device; the means
are over rows of all devices.

*in libraries*: the share of a call under torch.compile that is spent in matrix products, convolutions and other kernels
that torch has ready, as the plan measured it. Kernels that only fuse what is around them leave this share as
it is: with the share s they make the model at most 1 / s times as fast as torch.compile does. Those of
`builtin/compiler` also compute products with parameters and 3 x 3 convolutions themselves (compiled_products.md).
"""
REGIONS = """
## Region by region

The best kernel of each region that had a job, alone: a value under 1 in *over compile* is what torch.compile does for
this region that the kernel does not. *share*: of a call of the model under eager; regions of different grains overlap.
"""
BETWEEN = "between kernels"  # as in whole_models.capture.compiled, which runs in the sandbox and is not imported here


def optimize(path: Path, model: str, rounds: int) -> dict[str, Any]:
    """One `kernelwright model`, as a user would run it: what is told of it, and the wall time."""
    command = [sys.executable, "-m", "service.cli", "model", str(path), "--model", model, "--rounds", str(rounds)]
    start = time.perf_counter()
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=False, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return what_is_told(found) | {"exit_status": done.returncode, "wall_s": time.perf_counter() - start}


def what_is_told(found: dict[str, Any]) -> dict[str, Any]:
    """What the page tells of a run; the rest is in the run's store."""
    proof, plan = found.get("proof") or {}, found.get("plan") or {}
    return {
        "kept": found.get("kept"),
        "error": found.get("error"),
        "proof": {name: proof.get(name) for name in ("verdict", "tags", "latency_ms", "speedup")} if proof else None,
        "plan": {name: plan.get(name) for name in ("kernels_ms", "operators")},
        "regions": found.get("regions"),
    }


def row(name: str, found: dict[str, Any]) -> str:
    """One line of the table."""
    proof = found.get("proof") or {}
    latency, speedup = proof.get("latency_ms") or {}, proof.get("speedup") or {}
    regions = found.get("regions") or []
    tried = sum(region["job_id"] is not None for region in regions)
    cells = [
        name,
        *(f"{latency[each]['median']:.2f}" if each in latency else "" for each in ("eager", "compile", "candidate")),
        *(_interval(speedup.get(each)) for each in ("eager", "compile")),
        in_libraries(found),
        f"{len(regions)} / {tried} / {len(found.get('kept') or [])}",
        proof.get("verdict") or (found.get("error") or {}).get("message") or str(found.get("error") or "nothing pays"),
        ", ".join(proof.get("tags") or ()),
        f"{found['wall_s']:.0f}",
        f"`{found['harness'][:8]}` {found['device']}",
    ]
    return _line(cells)


def in_libraries(found: dict[str, Any]) -> str:
    """The share of a call under torch.compile in kernels that torch has ready; empty if there was no plan."""
    kernels = (found.get("plan") or {}).get("kernels_ms") or []
    total = sum(ms for _, ms in kernels)
    ready = sum(ms for name, ms in kernels if name != BETWEEN and not name.startswith("graph_"))
    return f"{ready / total:.0%}" if total else ""


def region_rows(name: str, found: dict[str, Any]) -> list[str]:
    """A line for each region that had a job, the largest share first."""
    regions = [region for region in found.get("regions") or [] if region["job_id"] is not None]
    return [
        _line(
            [
                name,
                f"`{region['name']}`",
                str(region["occurrences"]),
                f"{region['share']:.1%}",
                *("" if region[key] is None else f"{region[key]:.2f}" for key in ("speedup", "speedup_compile")),
                region["why"] or "",
            ]
        )
        for region in sorted(regions, key=lambda region: -region["share"])
    ]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _interval(found: dict[str, float] | None) -> str:
    return "" if found is None else f"{found['value']:.2f} ({found['low']:.2f}-{found['high']:.2f})"


def report(data: dict[str, Any]) -> str:
    """The page."""
    columns = (
        *("model", "eager ms", "compile ms", "ours ms", "over eager (95 %)", "over compile (95 %)"),
        *("in libraries", "regions / tried / kept", "verdict", "tags", "s", "referee and device"),
    )
    lines = [ABOUT, f"Kernels by {data['model']}, at most {data['rounds']} rounds a region.", ""]
    lines += [_line(list(columns)), f"|{'---|' * len(columns)}"]
    lines += [row(name, found) for name, found in sorted(data["runs"].items())]
    for over in ("eager", "compile"):
        speedups = [
            found["proof"]["speedup"][over]["value"]
            for found in data["runs"].values()
            if found.get("kept") and ((found.get("proof") or {}).get("speedup") or {}).get(over)
        ]
        if speedups:
            mean = math.exp(sum(map(math.log, speedups)) / len(speedups))
            lines += ["", f"Geometric mean over {over}: {mean:.2f} ({len(speedups)} of {len(FILES)} models)."]
    titles = ["model", "region", "places", "share", "over eager", "over compile", "in the model"]
    lines += [REGIONS, _line(titles), f"|{'---|' * len(titles)}"]
    lines += [line for name, found in sorted(data["runs"].items()) for line in region_rows(name, found)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="builtin/compiler", help="the Coder")
    parser.add_argument("--rounds", type=int, default=3, help="a region")
    parser.add_argument("--only", nargs="*", help="models by the names of their files")
    parser.add_argument("--again", action="store_true", help="run those again that were run")
    options = parser.parse_args()
    path = RESULTS / "whole_models.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    rules = {"model": options.model, "rounds": options.rounds}
    if {name: data.get(name) for name in rules} != rules:  # other rules, other results
        data = {**rules, "runs": {}}
    device = load_platform("cpu").device()
    vectors = "AVX-512" if "avx512f" in device.facts["vector extensions"] else "AVX2"
    where = {"harness": harness_hash(), "device": f"{device.name}, {vectors}"}
    for file in FILES:
        if (file.stem in data["runs"] and not options.again) or (options.only and file.stem not in options.only):
            continue
        data["runs"][file.stem] = optimize(file, options.model, options.rounds) | where
        path.write_text(json.dumps(data))
        (RESULTS / "whole_models.md").write_text(report(data))
        print(row(file.stem, data["runs"][file.stem]), file=sys.stderr)
    print(report(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())

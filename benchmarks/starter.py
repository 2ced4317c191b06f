"""The starter suite with a model: each op optimized once, and the table of what came of it.

Run: python benchmarks/starter.py [--model builtin/compiler] [--rounds 4] [--only NAME ...]
Writes benchmarks/results/starter.json (resumable: ops that are in it are not run again) and starter.md.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tasks.suites import load_suite

RESULTS = Path(__file__).parent / "results"
KEPT = ("verdict", "tags", "latency_ms", "speedup", "roofline", "cost_s")


def optimize(task_id: str, model: str, rounds: int) -> dict[str, Any]:
    """One `kernelwright optimize`, as a user would run it: how it stopped, its best evaluation, the wall time."""
    command = [
        sys.executable,
        "-m",
        "service.cli",
        "optimize",
        task_id,
        "--model",
        model,
        "--rounds",
        str(rounds),
        "--json",
    ]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return {"error": f"exit status {done.returncode}", "wall_s": time.perf_counter() - start}
    report = json.loads(done.stdout)
    best = report["best"]
    return {
        "stop": report["stop"],
        "best": None if best is None else {name: best[name] for name in KEPT},
        "wall_s": round(time.perf_counter() - start, 1),
    }


def geometric_mean(values: list[float]) -> float:
    """exp of the mean of logarithms; NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: a row an op, then geometric means over ops that passed, with how many did not."""
    lines = [
        "| op | eager ms | compile ms | best ms | over eager (95 %) | over compile (95 %) | roofline | tags | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    over: dict[str, list[float]] = {"eager": [], "compile": []}
    for name, result in sorted(results.items()):
        best = result.get("best")
        if not best or best["verdict"] != "passed":
            reason = result["error"] if "error" in result else result["stop"]["reason"]
            lines.append(f"| {name} | | | | no candidate passed ({reason}) | | | | |")
            continue
        latency, speedup = best["latency_ms"], best["speedup"]
        cells = [
            f"{latency[key]['median']:.3f}" if key in latency else "-" for key in ("eager", "compile", "candidate")
        ]
        for key in ("eager", "compile"):
            if key in speedup:
                over[key].append(speedup[key]["value"])
                cells.append("{value:.2f} ({low:.2f}-{high:.2f})".format(**speedup[key]))
            else:
                cells.append("-")
        cells += [f"{best['roofline']['fraction']:.0%}", ", ".join(best["tags"])]
        cells.append(f"{result['wall_s']:.0f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("")
    for key, values in over.items():
        lines.append(f"Geometric mean over {key}: {geometric_mean(values):.2f} ({len(values)} of {len(results)} ops).")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is not there yet and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin/compiler")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "starter.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() and not options.again else {}
    results: dict[str, Any] = kept.get("results", {})
    for task in load_suite("starter").tasks:
        if task.name in results or (options.only and task.name not in options.only):
            continue
        results[task.name] = optimize(task.id, options.model, options.rounds)
        facts = {
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(["python", *sys.argv]),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        }
        path.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n")
        head = f"# Starter suite, {options.model}\n\n" + "".join(f"- {key}: {value}\n" for key, value in facts.items())
        (RESULTS / "starter.md").write_text(head + "\n" + table(results))
        print(task.id, json.dumps((results[task.name].get("best") or {}).get("speedup")), flush=True)
    print(table(results))


if __name__ == "__main__":
    main()

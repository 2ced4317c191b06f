"""What each baseline is worth: the reference of each starter op as its own candidate, against all baselines.

Run: python -m benchmarks.baselines [--only NAME ...] [--again]
Writes benchmarks/results/baselines.json (resumable: ops that are in it are not run again, unless `--again` says so) and
baselines.md. It wants a machine on which nothing else runs.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.protocol.baselines import BASELINES, EAGER, OTHERS, title_of
from evaluator.referee_process import harness_hash
from sandbox.docker.sandbox import DockerSandbox
from service.settings import load_settings
from tasks.suites import load_suite
from tasks.task import Task

RESULTS = Path(__file__).parent / "results"
ABOUT = """# What baselines are worth

Each op of the starter suite, its reference handed in as the candidate, in one proof against all baselines. A value is
how many times as fast as eager a baseline is, with the 95 % interval. A baseline that is not right on all families of
inputs is left out ("wrong"), as is one that cannot run the op ("cannot run"); the reasons stand below the table.

*families*: on how many input families the baselines were judged. *judging s*: what starting and judging them took,
beside the *whole* evaluation.
"""


def measured(task: Task, sandbox: DockerSandbox, cache: BuildCache) -> dict[str, Any]:
    """What one evaluation says of the baselines of a task."""
    effort = Effort(baselines=tuple(BASELINES), wall_s=600.0)
    candidate = task.source + "\n\nModelNew = Model\n"
    platform = load_platform("cpu")
    found = evaluate(task, candidate, sandbox=sandbox, platform=platform, effort=effort, cache=cache).to_json()
    profile = found["profile"]
    return {
        "verdict": found["verdict"],
        "message": found["message"],
        "tags": list(found["tags"]),
        "speedup": found["speedup"] or {},
        "latency_ms": found["latency_ms"],
        "absent": profile.get("absent", {}),
        "judged": profile.get("baselines_judged", {}),
        "baselines_s": found["cost_s"].get("baselines"),
        "total_s": found["cost_s"]["total"],
        "harness": harness_hash()[:8],
        "device": platform.device().name,
    }


def over_eager(result: dict[str, Any], name: str) -> tuple[float, float, float] | None:
    """How many times as fast as eager a baseline is: the candidate is eager, so its speedup the other way round."""
    found = result["speedup"].get(name)
    return None if found is None else (1 / found["value"], 1 / found["high"], 1 / found["low"])


def cell(result: dict[str, Any], name: str) -> str:
    """A cell of the table."""
    found = over_eager(result, name)
    if found is not None:
        return "{:.2f} ({:.2f}-{:.2f})".format(*found)
    reason = result["absent"].get(name, "")
    return "wrong" if "is no baseline" in reason else "cannot run" if reason else "-"


def table(results: dict[str, dict[str, Any]]) -> str:
    """The page: a row an op, the fastest in bold, geometric means, and why baselines are absent."""
    head = ("op", "eager ms", *map(title_of, OTHERS), "families", "judging s", "whole s", "tags", "referee, device")
    lines = [ABOUT, f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for op, result in sorted(results.items()):
        known = {name: found[0] for name in OTHERS if (found := over_eager(result, name)) is not None}
        best = max(known, key=lambda name: known[name], default=None)
        cells = [
            f"**{cell(result, name)}**" if name == best and known[name] > 1 else cell(result, name) for name in OTHERS
        ]
        eager = result["latency_ms"].get(EAGER, {}).get("median", math.nan)
        judged = sorted(set(result["judged"].values()))
        spent = result["baselines_s"] or math.nan
        row = [op, f"{eager:.2f}", *cells, ", ".join(map(str, judged)), f"{spent:.1f}", f"{result['total_s']:.1f}"]
        row += [", ".join(result["tags"]), f"`{result['harness']}` {result['device']}"]
        lines.append(f"| {' | '.join(row)} |")
    lines.append("")
    for name in OTHERS:
        values = [found[0] for each in results.values() if (found := over_eager(each, name)) is not None]
        mean = math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
        lines.append(
            f"{title_of(name)}: geometric mean {mean:.2f} over eager on {len(values)} of {len(results)} ops.\n"
        )
    lines.append("## Why baselines are absent\n")
    for op, result in sorted(results.items()):
        lines += [f"- {op}: {reason}" for reason in result["absent"].values()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the ops that are not known yet; the page is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    file = RESULTS / "baselines.json"
    results: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    cache = BuildCache(load_settings().data_dir / "benchmark-baselines")
    for task in load_suite("starter").tasks:
        if (args.only and task.name not in args.only) or (task.name in results and not args.again):
            continue
        results[task.name] = measured(task, sandbox, cache)
        file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        (RESULTS / "baselines.md").write_text(table(results))
        print(task.name, results[task.name]["verdict"], results[task.name]["absent"], flush=True)


if __name__ == "__main__":
    main()

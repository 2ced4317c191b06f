"""What do jobs whose best climbs by small steps gain? The starter suite by this version and by an earlier one, paired.

Run: python -m benchmarks.climbing --before FOLDER [--rounds 6] [--only NAME ...]
FOLDER is a checkout of the earlier version; its sandbox image must be there (`kernelwright sandbox build` in it).
Each op is optimized by both, one right after the other, and what they deliver is compared by the present referee, as
candidate and champion of one evaluation at full precision. Writes benchmarks/results/climbing.json (resumable: ops that
are in it are not run again) and climbing.md.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.starter import geometric_mean
from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.peak_store import PeakStore
from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash
from sandbox.docker.sandbox import DockerSandbox
from tasks.suites import load_suite
from tasks.task import Task

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
SUITE = "starter"
ABOUT = """# What climbing gains

Each op of the starter suite by `builtin/compiler`, in at most {rounds} rounds, by this version and by an earlier one,
one right after the other. In the earlier one a candidate replaced the best so far only if their intervals lay apart;
now a sequential test of the pair decides, variations that won are combined, and the best is proven once more in the end
(docs/timing.md, "Trials and proofs"). All else that has changed between the two counts, too. *now over then*: the
kernel that this version delivers over the other's, by calls that were interleaved in one evaluation of the present
referee ("the same" where both deliver the same text). *round*: the one that the delivered kernel is of, of how many.
"""


def optimize(task: Task, folder: Path, data: Path, rounds: int) -> dict[str, Any]:
    """One `kernelwright optimize` by the version in a folder: what it delivers, its round of how many, the seconds."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "KERNELWRIGHT_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "service.cli", "optimize", task.id, "--model", "builtin/compiler"]
    command += ["--rounds", str(rounds), "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=folder, env=environment)
    wall_s = time.perf_counter() - start
    told = json.loads(done.stdout)
    if told["best"] is None:
        raise SystemExit(f"{task.id}: nothing passed ({told['stop']})")
    job, digest = told["job"]["id"], told["best"]["provenance"]["candidate"]
    with sqlite3.connect(data / "kernelwright.db") as store:
        query = "SELECT source, round FROM candidates WHERE job_id = ? AND hash = ? ORDER BY round"
        source, number = store.execute(query, (job, digest)).fetchone()
        (last,) = store.execute("SELECT max(number) FROM rounds WHERE job_id = ?", (job,)).fetchone()
    return {"source": source, "round": number, "rounds": last, "wall_s": wall_s, "over": told["best"]["speedup"]}


def compare(task: Task, now: str, then: str, sandbox: DockerSandbox) -> dict[str, float] | None:
    """The speedup of one source over another; None if they are the same."""
    if now == then:
        return None
    found = evaluate(
        task,
        now,
        sandbox=sandbox,
        platform=load_platform("cpu"),
        effort=Effort(baselines=("eager",)),
        champion_source=then,
        cache=BuildCache(RESULTS / ".cache"),
        peaks=PeakStore(RESULTS / ".peaks"),
    )
    if found.champion is None or found.champion.speedup is None:
        raise SystemExit(f"{task.id}: {found.verdict}: {found.message}; {found.champion}")
    speedup = found.champion.speedup
    return {"value": speedup.value, "low": speedup.low, "high": speedup.high}


def row(name: str, run: dict[str, Any]) -> str:
    """One line of the table."""
    cells, paired = [name], run["paired"]
    for version in ("then", "now"):
        told = run[version]
        cells += [
            "{value:.2f} ({low:.2f}-{high:.2f})".format(**told["over"]["eager"]),
            f"{told['round']} of {told['rounds']}",
            f"{told['wall_s']:.0f}",
        ]
    cells.append("the same" if paired is None else "{value:.3f} ({low:.3f}-{high:.3f})".format(**paired))
    return "| " + " | ".join(cells) + " |"


def report(data: dict[str, Any]) -> str:
    """The page with the table."""
    runs: dict[str, Any] = data["runs"]
    gains = [1.0 if run["paired"] is None else run["paired"]["value"] for run in runs.values()]
    above = sum(run["paired"] is not None and run["paired"]["low"] > 1.0 for run in runs.values())
    below = sum(run["paired"] is not None and run["paired"]["high"] < 1.0 for run in runs.values())
    lines = [
        ABOUT.format(rounds=data["rounds"]),
        f"Command: `python -m benchmarks.climbing --before FOLDER --rounds {data['rounds']}`, with `{data['before']}` "
        f"in FOLDER. Device: {data['device']}. Referee: `{data['harness'][:12]}`.",
        "",
        "| op | then: over eager | round | s | now: over eager | round | s | now over then |",
        "|---|---|---|---|---|---|---|---|",
        *(row(name, run) for name, run in sorted(runs.items())),
        "",
        f"Geometric mean of now over then: {geometric_mean(gains):.3f} ({len(runs)} ops; for certain faster: {above}, "
        f"slower: {below}).",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is not there yet and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier version")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="*", default=[], help="names of ops")
    options = parser.parse_args()
    before = options.before.resolve()
    commit = subprocess.run(
        ["git", "-C", str(before), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, check=True, text=True
    ).stdout.strip()
    path = RESULTS / "climbing.json"
    data: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    wanted = {"harness": harness_hash(), "before": commit, "rounds": options.rounds}
    if any(data.get(name) != value for name, value in wanted.items()):  # other rules, other results
        data = {**wanted, "device": load_platform("cpu").device().name, "runs": {}}
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    try:
        with tempfile.TemporaryDirectory() as then, tempfile.TemporaryDirectory() as now:
            for task in load_suite(SUITE).tasks:
                if task.name in data["runs"] or (options.only and task.name not in options.only):
                    continue
                found = {
                    "then": optimize(task, before, Path(then), options.rounds),
                    "now": optimize(task, ROOT, Path(now), options.rounds),
                }
                paired = compare(task, found["now"].pop("source"), found["then"].pop("source"), sandbox)
                data["runs"][task.name] = {**found, "paired": paired}
                path.write_text(json.dumps(data, indent=1) + "\n")
                (RESULTS / "climbing.md").write_text(report(data))
                print(row(task.name, data["runs"][task.name]), file=sys.stderr)
    finally:
        sandbox.close()
    print(report(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trials: how often the sequential test is right about two candidates, and how soon it decides.

Run: python -m benchmarks.trials [--trials 10] [--load] [--exemplars]
Writes benchmarks/results/trials.json (resumable: trials that are in it are not run again) and trials.md. `--load` runs
the same while another program wants a core for a fifth of the time. `--exemplars` runs each exemplar of platform `cpu`
against a version of itself that takes a tenth longer.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.exemplars import exemplars_of
from benchmarks.repeatability import quantile, slower_source, sources
from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, build_ahead, evaluate
from evaluator.peak_store import PeakStore
from evaluator.platforms import load_platform
from evaluator.referee.timing.sequential import Decision
from evaluator.referee_process import harness_hash, prepare_referee
from sandbox.docker.sandbox import DockerSandbox
from tasks.load import task_from_source
from tasks.task import Task

RESULTS = Path(__file__).parent / "results"
LABELS = ("0.05 ms", "1 ms", "10 ms")
EXTRAS = (0.0, 0.02, 0.05)
EXEMPLAR_EXTRA = 0.10
EFFORT = Effort(baselines=("eager",), trial=True)

# A program that works for a fifth of each 50 ms.
BURNER = """import time
while True:
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass
    time.sleep(0.04)
"""

WITH_EXTRA = """

_Quick = ModelNew


class ModelNew(_Quick):
    def forward(self, *values):
        import time

        start = time.perf_counter()
        y = super().forward(*values)
        end = time.perf_counter()
        end += {extra} * (end - start)
        while time.perf_counter() < end:
            pass
        return y
"""


def pairs(*, exemplars: bool) -> Iterator[tuple[str, Task, str, str]]:
    """Name, op, candidate and champion of each kind of trial; the candidate takes longer by what the name says."""
    if exemplars:
        for name, task, source in exemplars_of("cpu"):
            slower = source + WITH_EXTRA.format(extra=EXEMPLAR_EXTRA)
            yield f"exemplar {name}, {EXEMPLAR_EXTRA:.0%} slower", task, slower, source
        return
    for label in LABELS:
        reference, same = sources(label)
        task = task_from_source(reference, name="trials", where="trials")
        for extra in EXTRAS:
            # The same work in both, so that only the extra time tells them apart.
            slower, champion = (slower_source(label, each) if extra else same for each in (extra, 0.0))
            yield f"{label}, {f'{extra:.0%} slower' if extra else 'the same'}", task, slower, champion


def decide(sandbox: DockerSandbox, cache: BuildCache, task: Task, candidate: str, champion: str) -> dict[str, Any]:
    """One trial as in a job: the referee was started, the champion built and the device measured before."""
    platform = load_platform("cpu")
    limits, peaks = EFFORT.limits(), PeakStore(RESULTS / ".peaks")
    build_ahead(task, champion, sandbox=sandbox, platform=platform, effort=EFFORT, cache=cache)  # if it builds anything
    prepare_referee("evaluate", platform, device=0, sandbox=sandbox, limits=limits)
    time.sleep(4)  # a model writes meanwhile
    found = evaluate(
        task,
        candidate,
        sandbox=sandbox,
        platform=platform,
        effort=EFFORT,
        champion_source=champion,
        cache=cache,
        peaks=peaks,
    )
    compared = found.champion
    if compared is None or compared.speedup is None:
        raise SystemExit(f"{task.name}: {found.verdict}: {found.message}; {compared}")
    return {
        "decision": compared.decision,
        "value": compared.speedup.value,
        "sets": compared.sets,
        "total_s": found.cost_s["total"],
        "timing_s": found.cost_s["timing"],
        "eager_ms": found.latency_ms["eager"].median,
        "noisy": "noisy" in found.tags,
    }


COLUMNS = ("candidate", "trials", *(str(each) for each in Decision), "sets", "timing s", "whole trial s", "noisy")
ABOUT = """# Trials

What the sequential test of a job's rounds (docs/timing.md, "Trials and proofs") says of pairs whose truth is known: the
same code; the same with 2 or 5 % of extra time a call; exemplars of platform `cpu` with 10 % more of what `forward`
takes, which is less of a call (3.7 % was the least that was seen). The champion is the one
without the extra time, so *worse* is right for all but the same code, for which *better* and *worse* are wrong. *sets*,
*timing s* and *whole trial s* are median / largest; the referee was started before, as it is in a job.

Commands: `python -m benchmarks.trials`, with `--load` for the rows in which another program wants a core for a fifth of
the time, and with `--exemplars`.
"""


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """One line of the table."""
    counts = Counter(run["decision"] for run in runs)
    spans = [
        f"{quantile(values, 0.5):.{digits}f} / {max(values):.{digits}f}"
        for values, digits in (
            ([run["sets"] for run in runs], 0),
            ([run["timing_s"] for run in runs], 1),
            ([run["total_s"] for run in runs], 1),
        )
    ]
    noisy = sum(run["noisy"] for run in runs)
    cells = [name, str(len(runs)), *(str(counts[str(each)]) for each in Decision), *spans, str(noisy)]
    return "| " + " | ".join(cells) + " |"


def report(data: dict[str, Any]) -> str:
    """The page with the table."""
    lines = [ABOUT, f"Device: {data['device']}. Referee: `{data['harness'][:12]}`.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [row(name, runs) for name, runs in sorted(data["runs"].items()) if runs]
    for busy in (False, True):
        seconds = [
            run["total_s"]
            for name, runs in data["runs"].items()
            if name.startswith("exemplar") and name.endswith("busy") is busy
            for run in runs
        ]
        if seconds:
            where = "with a core a fifth busy" if busy else "quiet"
            lines += ["", f"All exemplars, {where}: {quantile(seconds, 0.5):.1f} s in the median of {len(seconds)}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10, help="of each kind")
    parser.add_argument("--load", action="store_true", help="another program wants a core for a fifth of the time")
    parser.add_argument("--exemplars", action="store_true", help="exemplars instead of ops of known duration")
    parser.add_argument("--only", nargs="*", help="kinds whose names begin so, such as '1 ms'")
    options = parser.parse_args()
    path = RESULTS / "trials.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    if data.get("harness") != harness_hash():  # other rules, other results
        data = {"harness": harness_hash(), "device": load_platform("cpu").device().name, "runs": {}}
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    cache = BuildCache(RESULTS / ".cache")
    burner = subprocess.Popen([sys.executable, "-c", BURNER]) if options.load else None
    try:
        for name, task, candidate, champion in pairs(exemplars=options.exemplars):
            if options.only and not name.startswith(tuple(options.only)):
                continue
            runs = data["runs"].setdefault(f"{name}, busy" if options.load else name, [])
            while len(runs) < options.trials:
                runs.append(decide(sandbox, cache, task, candidate, champion))
                last = runs[-1]
                print(
                    f"{name}: {last['decision']} ({last['value']:.4f}) after {last['sets']} sets, "
                    f"{last['timing_s']:.1f} s of {last['total_s']:.1f} s; eager {last['eager_ms']:.3f} ms",
                    file=sys.stderr,
                )
                path.write_text(json.dumps(data))
    finally:
        if burner is not None:
            burner.kill()
        sandbox.close()
    (RESULTS / "trials.md").write_text(report(data))
    print(report(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())

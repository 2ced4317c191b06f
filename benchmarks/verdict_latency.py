"""How long does a verdict take? Small C++ candidates, never seen before, from the call of `evaluate` to its result.

Run: python -m benchmarks.verdict_latency [--evaluations 10]
Writes benchmarks/results/verdict_latency.md (not with `--only`). *warm*: a sandbox is waiting, started ahead as the
service does while a model writes, and torch.compile's files of the task are in the cache. *cold*: neither. Every
candidate's text is new, so that it is built by its own g++, once to be checked and once for each process set (unless
that takes 3 s and is kept); *own build* is what once takes, measured beside it in the same image.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.pool import candidate_builder
from evaluator.referee_process import harness_hash, prepare_referee
from sandbox.base import Command
from sandbox.docker.sandbox import DockerSandbox
from tasks.load import task_from_source

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
BUILD_ONLY = Path(__file__).parent / "build_only"
READY_AFTER_S = 8.0  # a sandbox that was started ahead has imported torch and torch.compile by then
STAGES = ("start", "import", "reference", "build", "correctness", "timing", "limits")
EXAMPLE = "rmsnorm_gelu"
# The example as it ships, with 16 MB in and out, and a small one; small exemplars; a candidate of load_inline's.
NAMES = (f"{EXAMPLE} of 128 rows", "pooling", "resize", "attention", EXAMPLE, "load_inline")


@dataclass(frozen=True)
class Run:
    """One verdict: seconds in all, by stage, and of the candidate's own build alone, once."""

    total_s: float
    stages: dict[str, float]
    build_s: float
    sets: int
    eager_ms: float
    candidate_ms: float

    @property
    def without_build_s(self) -> float:
        """What is not the candidate's own build."""
        times = 1 if self.build_s > candidate_builder._SLOW_S else 1 + self.sets
        return self.total_s - times * self.build_s


def pair(name: str) -> tuple[str, str]:
    """A task and its candidate."""
    if name == "load_inline":
        task, _, candidate = (ROOT / f"tests/honest/{name}.py").read_text().partition("\n# --- candidate ---\n")
        return task, candidate
    if name.startswith(EXAMPLE):
        task = (ROOT / f"examples/{EXAMPLE}.py").read_text()
        assert "TOKENS = 2048" in task
        small = task.replace("TOKENS = 2048", "TOKENS = 128")
        return task if name == EXAMPLE else small, (ROOT / f"examples/candidates/{EXAMPLE}_cpp.py").read_text()
    folder = load_platform("cpu").prompts().folder / "exemplars"
    return (folder / f"{name}_task.py").read_text(), (folder / f"{name}.py").read_text()


def measure(name: str, sandbox: DockerSandbox, cache: BuildCache | None) -> Run:
    """One verdict; without a cache it is a cold one."""
    source, candidate = pair(name)
    candidate += f"\n# {time.time_ns()}\n"
    task = task_from_source(source, name="task", where=name)
    effort = Effort()
    if cache is not None:
        prepare_referee("evaluate", load_platform("cpu"), device=0, sandbox=sandbox, limits=effort.limits())
        time.sleep(READY_AFTER_S)
    found = evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort, cache=cache)
    if not found.passed:
        raise SystemExit(f"{name}: {found.verdict}: {found.message}")
    request = json.dumps({"task": source, "candidate": candidate}).encode()
    built = sandbox.run(Command(BUILD_ONLY, stdin=request))
    if built.exit_code != 0:
        raise SystemExit(f"{name}: the build alone failed: {built.stderr[-400:].decode(errors='replace')}")
    return Run(
        found.cost_s["total"],
        {stage: found.cost_s.get(stage, 0.0) for stage in STAGES},
        json.loads(built.stdout)["build_s"],
        len(found.profile["samples_ms"]["candidate"]),
        found.latency_ms["eager"].median,
        found.latency_ms["candidate"].median,
    )


def row(name: str, kind: str, runs: Sequence[Run]) -> str:
    """One line of the table; medians but for the totals."""

    def both(values: Sequence[float]) -> str:
        return f"{statistics.median(values):.1f} / {max(values):.1f}"

    def middle(values: Sequence[float]) -> str:
        return f"{statistics.median(values):.2f}"

    totals = [run.total_s for run in runs]
    without = [run.without_build_s for run in runs]
    cells = [
        name,
        kind,
        str(len(runs)),
        f"{statistics.median(run.eager_ms for run in runs):.2f} / "
        f"{statistics.median(run.candidate_ms for run in runs):.2f}",
        both(totals),
        middle([run.build_s for run in runs]),
        both(without),
        "/".join(str(sum(run.sets == sets for run in runs)) for sets in (2, 3))
        + f"/{sum(run.sets > 3 for run in runs)}",
        *(middle([run.stages[stage] for run in runs]) for stage in STAGES),
    ]
    return "| " + " | ".join(cells) + " |"


def report(rows: Sequence[str], device: str) -> str:
    """The page with the table."""
    columns = [
        "candidate", "", "runs", "eager / candidate ms", "total s (median / largest)", "own build s",
        "without it s (median / largest)", "with 2 / 3 / more sets", *(f"{stage} s" for stage in STAGES),
    ]  # fmt: skip
    header = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    about = (__doc__ or "").partition("\n\n")[2].replace("Run: ", "Command: ")
    title = "# How long does a verdict take?"
    return "\n".join([title, "", about, f"Device: {device}. Referee: `{harness_hash()[:12]}`.", "", header, *rows, ""])


def main() -> int:
    """Measure everything, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=10, help="warm ones of each; cold ones are 3")
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    options = parser.parse_args()
    sandbox, rows = DockerSandbox(load_platform("cpu").image().tag), []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            cache = BuildCache(Path(folder) / name)
            measure(name, sandbox, cache)  # fills the cache
            for kind, count in (("warm", options.evaluations), ("cold", 3)):
                runs = [measure(name, sandbox, cache if kind == "warm" else None) for _ in range(count)]
                rows.append(row(name, kind, runs))
                print(rows[-1], file=sys.stderr)
    if set(options.only) != set(NAMES):
        return 0  # a page has all of them
    (RESULTS / "verdict_latency.md").write_text(report(rows, load_platform("cpu").device().name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

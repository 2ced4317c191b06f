"""How long does a verdict take? Small C++ candidates, never seen before, from the call of `evaluate` to its result.

Run: python -m benchmarks.verdict_latency [--evaluations 10] [--load] [--attacks]
Writes benchmarks/results/verdict_latency.md (not with `--only`). *warm*: a sandbox is waiting, started ahead as the
service does while a model writes, torch.compile's files of the task are in the cache, and the device's peak rates are
known; torch.compile itself is imported while the candidate is checked. *cold*: nothing of that. *warm, busy* (with
`--load`): the same as warm while another program wants a core for a fifth of the time. Every candidate's text is new,
so that its own g++ builds it, once for the whole evaluation; *own build* is the time of that, measured beside it in the
same image.

With `--attacks` instead: the wall time of each attack of tests/attacks that must end as wrong or crashed, in a trial,
as a job's round is one, with a sandbox that was started ahead. Writes benchmarks/results/attack_latency.md (not with
`--only`, which names attacks then).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trials import BURNER
from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.peak_store import PeakStore
from evaluator.platforms import load_platform
from evaluator.referee.platforms.cpu.peaks import ENOUGH
from evaluator.referee_process import harness_hash, prepare_referee
from sandbox.base import Command
from sandbox.docker.sandbox import DockerSandbox
from tasks.load import task_from_source
from tasks.outcomes import Verdict
from tasks.task import Task
from tests.evaluator.test_attacks import ATTACKS, SEPARATOR, attacks, header

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
BUILD_ONLY = Path(__file__).parent / "build_only"
READY_AFTER_S = 8.0  # a sandbox that was started ahead has imported torch by then
TORCH_AFTER_S = 4.0  # torch alone
STAGES = ("start", "import", "reference", "build", "correctness", "timing", "limits", "neighbours")
EXAMPLE = "rmsnorm_gelu"
# The example as it ships, with 16 MB in and out, and a small one; small exemplars; a candidate of load_inline's.
NAMES = (f"{EXAMPLE} of 128 rows", "pooling", "resize", "attention", EXAMPLE, "load_inline")
PAGE, ATTACKS_PAGE = RESULTS / "verdict_latency.md", RESULTS / "attack_latency.md"
REFUSED = {Verdict.WRONG_OUTPUT, Verdict.CRASHED}


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
        """The seconds without the candidate's own build."""
        return self.total_s - self.build_s


@dataclass(frozen=True)
class Known:
    """What the service keeps between evaluations: builds, and the device's peak rates."""

    builds: BuildCache
    peaks: PeakStore

    @classmethod
    def nothing(cls, folder: Path) -> "Known":
        """Empty ones."""
        return cls(BuildCache(folder / "builds"), PeakStore(folder / "peaks"))


@contextmanager
def load() -> Iterator[None]:
    """Another program wants a core for a fifth of the time."""
    with subprocess.Popen([sys.executable, "-c", BURNER]) as burner:
        try:
            yield
        finally:
            burner.kill()


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


def judge(task: Task, candidate: str, sandbox: DockerSandbox, known: Known | None) -> Evaluation:
    """One verdict: a warm one, or a cold one if nothing is known."""
    effort, platform = Effort(), load_platform("cpu")
    if known is None:
        return evaluate(task, candidate, sandbox=sandbox, platform=platform, effort=effort)
    prepare_referee("evaluate", platform, device=0, sandbox=sandbox, limits=effort.limits())
    time.sleep(READY_AFTER_S)
    return evaluate(
        task, candidate, sandbox=sandbox, platform=platform, effort=effort, cache=known.builds, peaks=known.peaks
    )


def measure(name: str, sandbox: DockerSandbox, known: Known | None) -> Run:
    """One verdict on a candidate whose text is new."""
    source, candidate = pair(name)
    candidate += f"\n# {time.time_ns()}\n"
    task = task_from_source(source, name="task", where=name)
    found = judge(task, candidate, sandbox, known)
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


def refused_attacks() -> Iterator[tuple[str, Task, str]]:
    """Name, op and candidate of each attack whose header allows it no end but wrong or crashed."""
    for path in attacks():
        source = path.read_text()
        ends = {text.strip().partition("/")[0] for text in header(source, "verdict").split(" or ")}
        if ends <= REFUSED:
            op, separator, candidate = source.partition(SEPARATOR)
            if not separator:
                op, candidate = (ATTACKS / "op.py").read_text(), source
            yield path.stem, task_from_source(op, name=path.stem, where=path.name), candidate


def measure_attacks(sandbox: DockerSandbox, only: Sequence[str]) -> list[tuple[str, str, float]]:
    """Name, verdict and seconds of each attack."""
    found, platform, effort = [], load_platform("cpu"), Effort(baselines=("eager",), trial=True)
    for name, task, candidate in refused_attacks():
        if only and name not in only:
            continue
        prepare_referee("evaluate", platform, device=0, sandbox=sandbox, limits=effort.limits())
        time.sleep(TORCH_AFTER_S)
        evaluation = evaluate(task, candidate, sandbox=sandbox, platform=platform, effort=effort)
        found.append((name, evaluation.verdict.value, evaluation.cost_s["total"]))
        print(f"{name}: {evaluation.verdict} after {evaluation.cost_s['total']:.1f} s", file=sys.stderr)
    return found


def attacks_report(found: Sequence[tuple[str, str, float]], device: str) -> str:
    """The page with the table of attacks."""
    median = statistics.median(seconds for _, _, seconds in found)
    lines = [
        "# How long does a wrong candidate take?",
        "",
        "Command: python -m benchmarks.verdict_latency --attacks",
        "",
        f"Device: {device}. Referee: `{harness_hash()[:12]}`. Median of {len(found)} attacks: {median:.2f} s.",
        "",
        "| attack | verdict | s |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {name} | {verdict} | {seconds:.2f} |" for name, verdict, seconds in found), ""])


def report(rows: Sequence[str], device: str) -> str:
    """The page with the table."""
    columns = [
        "candidate", "", "runs", "eager / candidate ms", "total s (median / largest)", "own build s",
        "without it s (median / largest)", "with 2 / 3 / more sets", *(f"{stage} s" for stage in STAGES),
    ]  # fmt: skip
    header = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    about = (__doc__ or "").split("\n\n")[1].replace("Run: ", "Command: ")
    title = "# How long does a verdict take?"
    return "\n".join(
        [title, "", about, "", f"Device: {device}. Referee: `{harness_hash()[:12]}`.", "", header, *rows, ""]
    )


def main() -> int:
    """Measure everything, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=10, help="warm ones of each; cold ones are 3")
    parser.add_argument("--load", action="store_true", help="the warm ones again, beside another program")
    parser.add_argument("--attacks", action="store_true", help="attacks that must end as wrong or crashed instead")
    parser.add_argument("--only", nargs="*", default=[], help="these candidates or attacks; no page is written")
    options = parser.parse_args()
    sandbox, device, rows = DockerSandbox(load_platform("cpu").image().tag), load_platform("cpu").device().name, []
    with tempfile.TemporaryDirectory() as folder:
        if options.attacks:
            page, path = attacks_report(measure_attacks(sandbox, options.only), device), ATTACKS_PAGE
        else:
            kinds = [("warm", options.evaluations), ("cold", 3)]
            kinds += [("warm, busy", options.evaluations)] if options.load else []
            for name in options.only or NAMES:
                known = Known.nothing(Path(folder) / name)
                for _ in range(ENOUGH):  # then peak rates are no longer measured
                    measure(name, sandbox, known)
                for kind, count in kinds:
                    with load() if kind.endswith("busy") else nullcontext():
                        runs = [measure(name, sandbox, None if kind == "cold" else known) for _ in range(count)]
                    rows.append(row(name, kind, runs))
                    print(rows[-1], file=sys.stderr)
            page, path = report(rows, device), PAGE
    if options.only:
        print(page)
    else:
        path.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

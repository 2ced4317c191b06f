"""Does a timed call take as long as the same call in a model in steady use? The exemplars of platform `cpu`.

Run: python -m benchmarks.clock_gap [--evaluations 3] [--only NAME ...]
Writes benchmarks/results/clock_gap.md (not with `--only`). A *timed call* is what an evaluation times: fresh inputs,
after other processes have run. A *repeated call* follows the one before at once, in the same process, on the same
inputs.
"""

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.exemplars import exemplars_of
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash
from sandbox.docker.sandbox import DockerSandbox
from tasks.task import Task

RESULTS = Path(__file__).parent / "results"
EFFORT = Effort(baselines=("eager",), measure_budget_s=3.0)
ABOUT = """# What the clock adds to a call

Each exemplar of platform `cpu` in evaluations of its own: the median timed call of the last process set, and a
repeated call in the same process (`timed_call_ms` and `repeated_call_ms` of the profile; docs/timing.md). Median and
range of the evaluations. *within*: the gap is at most 10 % of the repeated call or 0.1 ms.
"""


def measure(sandbox: DockerSandbox, task: Task, source: str, evaluations: int) -> list[tuple[float, float]]:
    """The timed and the repeated call (ms) of an exemplar in each evaluation; empty for calls too long to repeat."""
    found = []
    for _ in range(evaluations):
        result = evaluate(task, source, sandbox=sandbox, platform=load_platform("cpu"), effort=EFFORT)
        if not result.passed:
            raise SystemExit(f"{task.name}: {result.verdict}: {result.message}")
        if "repeated_call_ms" in result.profile:
            found.append((result.profile["timed_call_ms"], result.profile["repeated_call_ms"]))
    return found


def row(name: str, found: list[tuple[float, float]]) -> str:
    """One line of the table."""
    if not found:
        return f"| {name} | too long to repeat | | | |"
    timed, repeated = (statistics.median(values) for values in zip(*found, strict=True))
    gaps = [one - other for one, other in found]
    within = sum(one - other <= max(0.1, 0.1 * other) for one, other in found)
    return (
        f"| {name} | {timed:.3f} | {repeated:.3f} | {statistics.median(gaps):.3f} ({min(gaps):.3f} to {max(gaps):.3f}) "
        f"| {within} of {len(found)} |"
    )


def main() -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=3, help="of each exemplar")
    parser.add_argument("--only", nargs="*", help="names of exemplars")
    options = parser.parse_args()
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    rows = []
    try:
        for name, task, source in exemplars_of("cpu"):
            if options.only is None or name in options.only:
                rows.append(row(name, measure(sandbox, task, source, options.evaluations)))
                print(rows[-1], file=sys.stderr)
    finally:
        sandbox.close()
    lines = [
        ABOUT,
        f"Command: `python -m benchmarks.clock_gap --evaluations {options.evaluations}`. "
        f"Device: {load_platform('cpu').device().name}. Referee: `{harness_hash()[:12]}`.",
        "",
        "| exemplar | timed call ms | repeated call ms | gap ms | within |",
        "|---|---|---|---|---|",
        *rows,
    ]
    page = "\n".join(lines) + "\n"
    print(page)
    if options.only is None:
        (RESULTS / "clock_gap.md").write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

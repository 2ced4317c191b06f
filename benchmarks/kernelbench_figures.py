"""This project's figures beside those of KernelBench's own analysis script, unchanged, on the same rows.

Run: PYTHONPATH=. python benchmarks/kernelbench_figures.py CHECKOUT [--python P] [--record | --report FOLDER ...]

CHECKOUT is a clone of github.com/ScalingIntelligence/KernelBench. P is a Python that has what its script imports
(tests/support/kernelbench_script.py). Without more it checks the rows and outputs that are recorded in
tests/data/kernelbench_analysis; `--record` records them anew, from generated rows. `--report` takes folders that
`kernelwright batch report` has written, and compares each of their results for KernelBench.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.batches.forms import kernelbench_form
from service.batches.results import samples_of
from service.batches.statistics import Figures, figures, pass_at_k
from service.client.server import batch_job
from tests.support.kernelbench_script import (
    details_of,
    digests,
    generated_rows,
    read_by_script,
    run_on_files,
    run_script,
    their_pass_at_k,
)

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "kernelbench_analysis"
CASES = {
    "level1": {"seed": 1, "suite": "kernelbench-level1", "tasks": 24, "samples": 3},
    "level2": {"seed": 2, "suite": "kernelbench-level2-fit256MB", "tasks": 16, "samples": 1},
    "starter": {"seed": 3, "suite": "starter", "tasks": 9, "samples": 2},
}
NEAR = 1e-9


def main() -> int:
    """Record, or check; the exit status is 1 if a figure differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--commit", default="unknown", help="The checkout's commit, to be recorded.")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--report", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    if given.record:
        _record(given.checkout, given.python, given.commit)
    differing = 0
    pairs = _of_reports(given) if given.report else _of_records(given)
    for name, ours, theirs, printed in pairs:
        print(f"== {name}\n{printed}")
        for what, mine, its in compared(ours, theirs):
            same = abs(mine - its) <= NEAR * max(1.0, abs(its))
            differing += not same
            print(f"{what:28} kernelwright {mine:.12g}  KernelBench {its:.12g}  {'same' if same else 'DIFFERS'}")
    if not given.report:
        differing += _check_pass_at_k(given.checkout, given.python)
    print(f"{differing} figures differ" if differing else "every figure is the same")
    return int(differing > 0)


def compared(ours: Figures, theirs: dict[str, Any]) -> list[tuple[str, float, float]]:
    """The figures that both have, by name: ours of one sample a task, and the script's. It calls nothing correct 0."""
    of_passed = ours.geomean_passed
    pairs = [
        ("problems", ours.tasks, theirs["total_count"]),
        ("compilation rate", ours.compile_rate or 0.0, theirs["compilation_rate"]),
        ("correctness rate", ours.correctness_rate or 0.0, theirs["correctness_rate"]),
        ("geometric mean of correct", of_passed.value if of_passed else 0.0, theirs["geo_mean_speedup"]),
    ]
    return pairs + [(f"fast_{p}", ours.fast_p[float(p)], score) for p, score in theirs["fast_p"].items()]


def _of_records(given: argparse.Namespace) -> Iterator[tuple[str, Figures, dict[str, Any], str]]:
    for path in sorted(RECORDED.glob("*.json")):
        recorded = json.loads(path.read_text())
        details = details_of([tuple(row) for row in recorded["rows"]])
        with tempfile.TemporaryDirectory() as folder:
            printed, theirs = run_script(given.checkout, given.python, kernelbench_form(details), Path(folder))
        if (printed, theirs) != (recorded["printed"], recorded["figures"]):
            raise SystemExit(
                f"{path.name}: the script says other things than recorded; its code: {digests(given.checkout)}"
            )
        first = [sample for sample in samples_of(details.jobs, "eager") if sample.number == 1]
        yield path.stem, figures(first), theirs, printed


def _of_reports(given: argparse.Namespace) -> Iterator[tuple[str, Figures, dict[str, Any], str]]:
    for report in given.report:
        whole = json.loads((report / "report.json").read_text())
        all_jobs = [batch_job(row) for row in whole["jobs"]]
        for about in sorted(report.glob("kernelbench/*/about.json")):
            values = json.loads(about.read_text())
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(about.parent, Path(folder) / "runs" / "run")
                shutil.copy(about.parent / "baseline.json", Path(folder) / "baseline.json")
                printed, theirs = run_on_files(
                    given.checkout,
                    given.python,
                    Path(folder),
                    level=values["level"],
                    problems=list(values["problems"].values()),
                )
            jobs = [
                job
                for job in all_jobs
                if (job.model, job.platform, job.suite) == (values["model"], values["platform"], values["suite"])
            ]
            first = [sample for sample in samples_of(jobs, whole["over"]) if sample.number == 1]
            yield f"{report}: {about.parent.name}", figures(first), theirs, printed


def _check_pass_at_k(checkout: Path, python: str) -> int:
    cases = [(1, 0, 1), (3, 1, 2), (5, 2, 5), (10, 3, 5), (20, 1, 10), (100, 37, 10)]
    found = [(case, pass_at_k(*case), their_pass_at_k(checkout, python, *case)) for case in cases]
    print("== pass@k of n, c, k:", ", ".join(f"{case}: {ours:.6f}" for case, ours, _ in found))
    return sum(abs(ours - theirs) > NEAR for _, ours, theirs in found)


def _record(checkout: Path, python: str, commit: str) -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        rows = generated_rows(**case)  # type: ignore[arg-type]
        form = kernelbench_form(details_of(rows))
        with tempfile.TemporaryDirectory() as folder:
            printed, theirs = run_script(checkout, python, form, Path(folder))
        recorded = {
            "kernelbench": {"commit": commit, "sha256": digests(checkout)},
            "rows": rows,
            "read": read_by_script(form),
            "printed": printed,
            "figures": theirs,
        }
        (RECORDED / f"{name}.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

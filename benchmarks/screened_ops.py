"""The starter ops in CUDA C++ and Triton, screened without a GPU; and what is said of faults planted in them.

Run: python -m benchmarks.screened_ops [--only NAME ...]
Candidates are in benchmarks/screening/cuda and triton, faults in benchmarks/screening/faults. Writes
benchmarks/results/screening.json, where names that are not asked for keep their results, and screening.md.
"""

import argparse
import contextlib
import io
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.screening.faults import cuda, triton
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.protocol.gpu_checks import ARCHITECTURES
from sandbox.docker.sandbox import DockerSandbox
from service.cli.job_output import show_evaluation
from tasks.suites import load_suite

FOLDER, RESULTS = Path(__file__).parent / "screening", Path(__file__).parent / "results"
PLATFORMS = ("cuda", "triton")
FAULTS = {
    f"{module.__name__.rpartition('.')[2]}/{name}": fault
    for module in (cuda, triton)
    for name, fault in module.FAULTS.items()
}
KEPT = RESULTS / "screening.json"
EFFORT = Effort(wall_s=2400.0, build_timeout_s=600.0, call_timeout_s=300.0, baselines=())
REPORT_LINES = 14
SMALLER = re.compile(r" of smaller inputs \((.*?)\)")
"""What an evaluation's message says of them."""

ABOUT = """# Kernels for GPUs, screened without one

The starter ops as kernels written by hand, and faults planted in them. Everything was judged by the referee in Docker
at the sizes of the tasks, or at smaller ones where a call would take too long. Nothing is timed.
"""
OF_CANDIDATES = """## Candidates

*Registers*, *shared memory* and *spilled* bytes are those of the kernel with the most registers, as NVIDIA's assembler
tells them for sm_80 / sm_90a / sm_100; for a kernel with several configurations, of the one with the most. *Inputs*
says on which smaller inputs than the task's it was judged, if on any. *Not shown* holds tags that are missing, with the
reason.
"""
OF_FAULTS = """## Faults

Each is a small change of a candidate above (benchmarks/screening/faults). Below stands what `kernelwright evaluate`
prints of it, its first lines. `atomic_between_blocks_left_out` is not found: the emulation runs blocks one after
another, so what they add up with no atomic operation is right in every order (docs/platforms.md).
"""


def kept_results() -> dict[str, Any]:
    """What earlier runs have found, by name."""
    return json.loads(KEPT.read_text()) if KEPT.is_file() else {}


def screen(sandbox: DockerSandbox, platform: str, op: str, source: str) -> dict[str, Any]:
    """What the page says of a candidate: its verdict, its kernels, and what the command line prints."""
    [task] = [task for task in load_suite("starter").tasks if task.name == op]
    found = evaluate(task, source, sandbox=sandbox, platform=load_platform(platform), effort=EFFORT).to_json()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show_evaluation(found)
    return told_of(found, printed.getvalue())


def told_of(found: Mapping[str, Any], printed: str) -> dict[str, Any]:
    """What is kept of an evaluation in the form of `Evaluation.to_json`, and of what the command line prints."""
    screening = (found["profile"] or {}).get("screening") or {}
    return {
        "verdict": found["verdict"],
        "code": found["code"],
        "message": found["message"],
        "tags": found["tags"],
        "missing": screening.get("missing") or {},
        "compiled": {
            each["architecture"]: {
                "kernels": [_of_kernel(kernel) for kernel in each["kernels"]],
                "tensor_cores": each["sass"].get("tensor cores", 0),
            }
            for each in screening.get("compiled") or ()
        },
        "report": printed.splitlines(),
    }


def _of_kernel(kernel: Mapping[str, Any]) -> dict[str, Any]:
    spilled = kernel.get("spill_stores", 0) + kernel.get("spill_loads", 0)
    numbers = {"registers": kernel["registers"], "shared_bytes": kernel["shared_bytes"], "spilled_bytes": spilled}
    return {"kernel": kernel["kernel"], **{name: int(value) for name, value in numbers.items()}}


def row(name: str, found: Mapping[str, Any]) -> str:
    """A candidate's line of the table."""
    platform, _, op = name.partition("/")
    cells = []
    for what in ("registers", "shared_bytes", "spilled_bytes"):
        mains = [_main(found["compiled"][each]["kernels"]) for each in ARCHITECTURES if each in found["compiled"]]
        cells.append(" / ".join(str(main[what]) for main in mains if main) or "-")
    cores = any(each["tensor_cores"] for each in found["compiled"].values())
    verdict = found["verdict"] + (f" ({found['code']})" if found["code"] else "")
    tags = ", ".join(found["tags"])
    missing = "; ".join(f"{tag}: {why}" for tag, why in found["missing"].items()).replace("|", "\\|")
    smaller = SMALLER.search(found["message"])
    cells += ["yes" if cores else "no", smaller.group(1) if smaller else "the task's", missing]
    return f"| {op} | {platform} | {verdict} | {tags} | {' | '.join(cells)} |"


def _main(kernels: list[dict[str, Any]]) -> dict[str, Any] | None:
    return max(kernels, key=lambda each: each["registers"], default=None)


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all results."""
    lines = [
        ABOUT,
        "Command: `python -m benchmarks.screened_ops`.",
        "",
        OF_CANDIDATES,
        "| op | language | verdict | tags | registers | shared memory | spilled | tensor cores | inputs | not shown |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ops = [f"{platform}/{task.name}" for task in load_suite("starter").tasks for platform in PLATFORMS]
    lines += [row(name, results[name]) for name in ops if name in results]
    if absent := [name for name in (*ops, *(f"fault/{name}" for name in FAULTS)) if name not in results]:
        lines += ["", f"Not judged yet: {', '.join(absent)}."]
    told = [(name, fault, results[f"fault/{name}"]) for name, fault in FAULTS.items() if f"fault/{name}" in results]
    lines += ["", OF_FAULTS, "| fault | language | op | verdict | code |", "|---|---|---|---|---|"]
    for name, fault, found in told:
        what = f"{fault.what} (`{name.partition('/')[2]}`)"
        lines.append(f"| {what} | {fault.platform} | {fault.op} | {found['verdict']} | {found['code'] or ''} |")
    for name, fault, found in told:
        lines += ["", f"### {name}: {fault.what}", "", "```text", *found["report"][:REPORT_LINES], "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Screen what is asked for and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m benchmarks.screened_ops --only cuda/gelu_tanh fault/triton/wrong_for_nan",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="PLATFORM/OP, or fault/PLATFORM/NAME")
    parser.add_argument(
        "--missing", action="store_true", help="only what has no result, as after a run that was stopped"
    )
    options = parser.parse_args()
    sources = {
        f"{platform}/{task.name}": (platform, task.name, (FOLDER / platform / f"{task.name}.py").read_text())
        for task in load_suite("starter").tasks
        for platform in PLATFORMS
    } | {f"fault/{name}": (fault.platform, fault.op, fault.source(FOLDER)) for name, fault in FAULTS.items()}
    if unknown := set(options.only or ()) - set(sources):
        parser.error(f"nothing is named {', '.join(sorted(unknown))}")
    known = kept_results()
    for platform in PLATFORMS:
        sandbox = DockerSandbox(load_platform(platform).image().tag)
        try:
            for name, (of, op, source) in sources.items():
                asked = options.only is None or name in options.only
                if of != platform or not asked or (options.missing and name in known):
                    continue
                found = screen(sandbox, platform, op, source)
                print(name, found["verdict"], found["code"] or "", *found["tags"], file=sys.stderr)
                # Read again: another run may have added to it meanwhile.
                text = json.dumps({**kept_results(), name: found}, indent=1, sort_keys=True)
                KEPT.write_text(text + "\n")
        finally:
            sandbox.close()
    (RESULTS / "screening.md").write_text(page(kept_results()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

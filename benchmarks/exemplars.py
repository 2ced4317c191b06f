"""How fast are a platform's exemplars, and how exact is the referee about them? For platforms that time or count.

Run: python -m benchmarks.exemplars [--platform opencl] [--only NAME ...]
Writes benchmarks/results/exemplars_PLATFORM.json (resumable: exemplars that it has of the same referee are not run
again) and exemplars_PLATFORM.md. Where calls are timed, each exemplar is proven against eager and torch.compile, beside
a second process of the very same text, so one evaluation shows its speedup and by how much equal code is off. Where
instructions are counted, the page has the counts at each vector length.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee_process import harness_hash
from sandbox.docker.sandbox import DockerSandbox
from tasks.load import load_task
from tasks.task import Task

RESULTS = Path(__file__).parent / "results"
ABOUT = """# Exemplars of platform `{platform}`

{what}

Command: `python -m benchmarks.exemplars --platform {platform}`. Device: {device}. Referee: `{harness}`.
"""
TIMED_ABOUT = """\
Each is proven once: over eager, over torch.compile, and over a second process of the same text (*the same*), for which
1 is right; with 95 % intervals."""
COUNTED_ABOUT = """\
Each is judged once. Its kernels run at each vector length of {lengths} bits and are right at all of them; the figures
are thousands of executed instructions of one call, and *over eager* is that of their sum."""
COLUMNS = ("exemplar", "eager ms", "exemplar ms", "over eager", "over torch.compile", "the same", "s", "tags")
COUNTED = ("riscv", "arm64")


def exemplars_of(platform_name: str) -> Iterator[tuple[str, Task, str]]:
    """The exemplars of a platform: the name of each, its op and its kernel."""
    for path in sorted((load_platform(platform_name).prompts().folder / "exemplars").glob("*_task.py")):
        name = path.stem.removesuffix("_task")
        yield name, load_task(path), path.with_name(f"{name}.py").read_text()


def proven(task: Task, source: str, platform_name: str, sandbox: DockerSandbox) -> dict[str, Any]:
    """What a full evaluation of an exemplar found."""
    platform = load_platform(platform_name)
    champion = "" if platform_name in COUNTED else source
    found = evaluate(task, source, sandbox=sandbox, platform=platform, effort=Effort(), champion_source=champion)
    if not found.passed or found.speedup is None:
        raise SystemExit(f"{task.name}: {found.verdict}: {found.message}")
    counted: dict[str, Any] = dict(found.profile).get("instructions") or {}
    same = None if found.champion is None or found.champion.speedup is None else found.champion.speedup
    return {
        "latency_ms": {name: each.median for name, each in found.latency_ms.items()},
        "speedup": {name: [each.value, each.low, each.high] for name, each in found.speedup.items()},
        "same": None if same is None else [same.value, same.low, same.high],
        "instructions": {length: each["total"] for length, each in counted.items()},
        "tags": list(found.tags),
        "total_s": found.cost_s["total"],
    }


def row(name: str, found: dict[str, Any]) -> str:
    """One line of the table."""
    ratios = [found["speedup"].get("eager"), found["speedup"].get("compile"), found["same"]]
    shown = [
        "–" if each is None else "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*each, d=digits)
        for each, digits in zip(ratios, (2, 2, 3), strict=True)
    ]
    latency = [f"{found['latency_ms'][which]:.3f}" for which in ("eager", "candidate")]
    return f"| {' | '.join([name, *latency, *shown, format(found['total_s'], '.0f'), ', '.join(found['tags'])])} |"


def about(data: dict[str, Any], what: str) -> str:
    """The head of the page."""
    return ABOUT.format(platform=data["platform"], device=data["device"], harness=data["harness"][:12], what=what)


def counted_page(data: dict[str, Any]) -> str:
    """The table of a platform that counts."""
    runs: dict[str, Any] = data["runs"]
    lengths = list(next(iter(runs.values()))["instructions"])
    columns = ("exemplar", "eager", *(f"at {length}" for length in lengths), "over eager", "s", "tags")
    lines = [about(data, COUNTED_ABOUT.format(lengths=", ".join(lengths))), f"| {' | '.join(columns)} |"]
    lines.append(f"|{'---|' * len(columns)}")
    for name, found in sorted(runs.items()):
        counts = [found["latency_ms"]["eager"] * 1e3, *(found["instructions"][each] / 1e3 for each in lengths)]
        shown = [f"{each:,.1f}" for each in counts]
        rest = [f"{found['speedup']['eager'][0]:.2f}", f"{found['total_s']:.0f}", ", ".join(found["tags"])]
        lines.append(f"| {' | '.join([name, *shown, *rest])} |")
    mean = statistics.geometric_mean([found["speedup"]["eager"][0] for found in runs.values()])
    return "\n".join([*lines, "", f"Geometric mean over eager: {mean:.2f} ({len(runs)})."]) + "\n"


def page(data: dict[str, Any]) -> str:
    """The table, and in one line what it comes to."""
    if data["platform"] in COUNTED:
        return counted_page(data)
    runs: dict[str, Any] = data["runs"]
    lines = [about(data, TIMED_ABOUT), f"| {' | '.join(COLUMNS)} |"]
    lines += [f"|{'---|' * len(COLUMNS)}", *(row(name, found) for name, found in sorted(runs.items())), ""]
    off = [abs(found["same"][0] - 1) for found in runs.values() if found["same"]]
    holds = sum(found["same"][1] <= 1 <= found["same"][2] for found in runs.values() if found["same"])
    for name, title in (("eager", "eager"), ("compile", "torch.compile")):
        values = [found["speedup"][name][0] for found in runs.values() if name in found["speedup"]]
        if values:
            lines.append(f"Geometric mean over {title}: {statistics.geometric_mean(values):.2f} ({len(values)}).")
    if off:
        lines.append(
            f"The same text is off by {statistics.median(off):.2%} in the median and {max(off):.2%} at most; the "
            f"interval holds 1 for {holds} of {len(off)}."
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="opencl", choices=("cpu", "opencl", *COUNTED))
    parser.add_argument("--only", nargs="*", help="names of exemplars")
    options = parser.parse_args()
    platform, kept = load_platform(options.platform), RESULTS / f"exemplars_{options.platform}.json"
    data: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if data.get("harness") != harness_hash():  # other rules, other results
        known = {"platform": options.platform, "device": platform.device().name}
        data = {"harness": harness_hash(), **known, "runs": {}}
    sandbox = DockerSandbox(platform.image().tag)
    try:
        for name, task, source in exemplars_of(options.platform):
            if name in data["runs"] or (options.only is not None and name not in options.only):
                continue
            data["runs"][name] = proven(task, source, options.platform, sandbox)
            kept.write_text(json.dumps(data, indent=1) + "\n")
            print(row(name, data["runs"][name]), file=sys.stderr)
    finally:
        sandbox.close()
    kept.with_suffix(".md").write_text(page(data))
    print(page(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Platforms `cuda` and `triton` on this host's GPU: `python -m benchmarks.gpu` writes benchmarks/results/gpu.md.

It needs torch, numpy and the standard library, and no Docker. Without a GPU it says so and writes nothing. The page is
written anew after each line of it, so that a run that is cut short leaves what it has found.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import Platform, load_platform
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.profile import profile_candidate
from evaluator.referee.protocol.nvml import Gpu
from evaluator.referee_process import harness_hash
from sandbox.base import Sandbox
from sandbox.process.sandbox import ProcessSandbox
from tasks.build import task_from_source
from tests.platforms.gpu.candidates import ATTACKS, HONEST, LARGE
from tests.platforms.kits import KITS, OP

RESULTS = Path(__file__).parent / "results"
NO_GPU = 3  # exit status
ABOUT = """# Platforms cuda and triton on a GPU

The conformance kits, attacks and honest candidates that only a GPU can judge, and an op against itself (A/A), under the
whole referee in the process sandbox."""


@dataclass(frozen=True)
class Case:
    """One evaluation, and what must come of it; no verdict: its figure is what is asked for."""

    part: str
    name: str
    platform: str
    op: str
    source: str
    verdicts: tuple[str, ...] = ()


def cases(again: int) -> Iterator[Case]:
    """All evaluations, those that tell most first; A/A `again` times."""
    for platform in ("triton", "cuda"):
        yield Case("kit", "right", platform, OP, KITS[platform].right, ("passed",))
    for platform in ("triton", "cuda"):
        kit = KITS[platform]
        yield Case("kit", "wrong", platform, OP, kit.wrong, ("wrong_output",))
        yield Case("kit", "raises", platform, OP, kit.raises, ("crashed",))
        yield Case("kit", "no Python", platform, OP, kit.broken, ("build_failed",))
        for name, source in kit.cheats.items():
            yield Case("kit", f"cheat: {name}", platform, OP, source, ("wrong_output", "integrity"))
    for number in range(again):
        yield Case("A/A", f"run {number + 1}", "cuda", LARGE, HONEST["torch"])
    for name, attack in ATTACKS.items():
        yield Case("attack", name, "cuda", OP, attack.source, attack.verdicts)
    for name, source in HONEST.items():
        yield Case("honest", name, "cuda", OP, source, ("passed",))


def row_of(case: Case, found: Evaluation, seconds: float) -> str:
    """One line of the table."""
    kept = found.verdict in case.verdicts if case.verdicts else found.speedup is not None
    speedup = latency = ""
    if found.speedup is not None:
        interval = found.speedup["eager"]
        speedup = f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})"
        latency = f"{found.latency_ms['eager'].median:.4f} / {found.latency_ms['candidate'].median:.4f}"
    verdict = f"{found.verdict}{f' ({found.code})' if found.code else ''}"
    said = "" if kept and found.verdict == "passed" else found.message.replace("|", "/").replace("\n", " ")[:160]
    cells = (case.part, case.platform, case.name, verdict, "yes" if kept else "NO", speedup, latency)
    return "| " + " | ".join((*cells, " ".join(found.tags), f"{seconds:.1f}", said)) + " |"


def page_of(gpu: Gpu, command: str, rows: list[str], profiles: Sequence[str] = ()) -> str:
    """The page as it is so far: a table, and the profile of the kit's right candidate in each language."""
    told = sum("| yes |" in row for row in rows)
    lines = [
        ABOUT,
        "",
        f"Date: {datetime.now(UTC):%Y-%m-%d}. Device: {gpu.name}, compute capability {gpu.compute_capability}, driver "
        f"{gpu.driver}. Command: `{command}`. Referee: `{harness_hash()[:12]}`.",
        "",
        f"As it must be: {told} of {len(rows)}.",
        "",
        "| part | platform | candidate | verdict | as it must be | over eager (95 %) | eager / candidate ms "
        "| tags | s | says |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        *profiles,
    ]
    return "\n".join(lines) + "\n"


def judged(
    case: Case, platform: Platform, sandbox: Sandbox, cache: BuildCache, device: int
) -> tuple[Evaluation, float]:
    """The evaluation of a case, and the seconds that it took."""
    effort = Effort(measure_budget_s=4.0, baselines=("eager",), build_timeout_s=240.0)
    task, start = task_from_source(case.op, name="scaled_relu"), time.perf_counter()
    found = evaluate(task, case.source, sandbox=sandbox, platform=platform, device=device, effort=effort, cache=cache)
    return found, time.perf_counter() - start


def profiled(platform: Platform, sandbox: Sandbox, cache: BuildCache, device: int, *, sanitize: bool) -> str:
    """The section with the profile of the kit's right candidate, as a Judge reads it."""
    task, start = task_from_source(OP, name="scaled_relu"), time.perf_counter()
    detail = profile_candidate(
        task,
        KITS[platform.name].right,
        sandbox=sandbox,
        platform=platform,
        device=device,
        effort=Effort(build_timeout_s=240.0),
        cache=cache,
        sanitize=sanitize,
    )
    took = f"{time.perf_counter() - start:.1f} s"
    text = platform.profile_text({"gpu": {}, "detail": detail})
    return f"\n## Profile of the kit's right candidate on {platform.name} ({took})\n\n```text\n{text}\n```"


def main() -> int:
    """Run; exit status 3 without a GPU, 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0, help="which GPU, in the order of the bus")
    parser.add_argument("--again", type=int, default=5, help="how often the op is measured against itself")
    parser.add_argument("--only", nargs="*", help="parts: kit, A/A, attack, honest, profile")
    parser.add_argument("--sanitize", action="store_true", help="profiles with compute-sanitizer, which takes minutes")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no evaluation after so many seconds")
    options = parser.parse_args()
    gpu = gpu_at(options.device)
    if gpu is None:
        print(
            f"no NVIDIA driver answers for GPU {options.device}: nothing was run, nothing was written", file=sys.stderr
        )
        return NO_GPU
    command, started, rows = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]), time.perf_counter(), list[str]()
    platforms = {name: load_platform(name, options.device) for name in ("cuda", "triton")}
    sandbox, cache = ProcessSandbox(), BuildCache(RESULTS / ".cache" / "gpu")
    for case in cases(options.again):
        if options.only is not None and case.part not in options.only:
            continue
        if time.perf_counter() - started > options.for_s:
            break
        found, seconds = judged(case, platforms[case.platform], sandbox, cache, options.device)
        rows.append(row_of(case, found, seconds))
        print(rows[-1], flush=True)
        if found.detail and "NO" in rows[-1]:
            print(found.detail[-3000:], file=sys.stderr, flush=True)
        (RESULTS / "gpu.md").write_text(page_of(gpu, command, rows))
    profiles: list[str] = []
    for platform in platforms.values():
        late = time.perf_counter() - started > options.for_s
        if late or (options.only is not None and "profile" not in options.only):
            break
        profiles.append(profiled(platform, sandbox, cache, options.device, sanitize=options.sanitize))
        print(profiles[-1], flush=True)
        (RESULTS / "gpu.md").write_text(page_of(gpu, command, rows, profiles))
    if profiles and not rows:
        return 0
    return 1 if not rows or any("| NO |" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

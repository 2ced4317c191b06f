"""Platforms `cuda` and `triton` on this host's GPU: `python -m benchmarks.gpu` writes benchmarks/results/gpu.md.

It needs torch, numpy and the standard library, and no Docker. Without a GPU it says so and writes nothing. Results are
kept in gpu.json beside the page after each case, so that a run that is cut short leaves what it has found, and the next
one goes on where it ended; another referee's results are made again with --again.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import PARTS, PLATFORMS, Case, cases
from benchmarks.gpu.page import NOT_JUDGED, REFUSED, page_of
from evaluator.build_cache import BuildCache
from evaluator.evaluate import build_ahead, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import Platform, load_platform
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.profile import profile_candidate
from evaluator.referee_process import harness_hash
from sandbox.base import Sandbox
from sandbox.process.sandbox import ProcessSandbox
from tasks.build import task_from_source

RESULTS = Path(__file__).parents[1] / "results"
NO_GPU = 3  # exit status


def kept_of(case: Case, found: Evaluation) -> dict[str, Any]:
    """What is kept of an evaluation, as JSON."""
    against = None if found.champion is None else found.champion.speedup
    if case.verdicts:
        kept = found.verdict in case.verdicts
    elif case.part == "fault":
        kept = found.verdict not in NOT_JUDGED
    elif case.against:
        kept = found.verdict in REFUSED or (against is not None and against.value <= case.at_most)
    else:
        kept = found.speedup is not None
    return {
        **_named(case),
        "kept": kept,
        "verdict": str(found.verdict),
        "code": found.code,
        "message": found.message,
        "tags": list(found.tags),
        "speedup": None
        if found.speedup is None
        else {name: [each.value, each.low, each.high] for name, each in found.speedup.items()},
        "against": None if against is None else [against.value, against.low, against.high],
        "latency_ms": {name: each.median for name, each in found.latency_ms.items()},
        "roofline": None if found.roofline is None else found.roofline.fraction,
        "handover_ms": found.profile.get("handover_ms"),
        "gpu": found.profile.get("gpu"),
        "cost_s": dict(found.cost_s),
    }


def profiled(
    case: Case, platform: Platform, sandbox: Sandbox, cache: BuildCache, device: int, *, sanitize: bool
) -> dict[str, Any]:
    """What is kept of a detailed profile, as JSON."""
    task = task_from_source(case.op, name=case.name)
    detail = profile_candidate(
        task,
        case.source,
        sandbox=sandbox,
        platform=platform,
        device=device,
        effort=case.effort,
        cache=cache,
        sanitize=sanitize,
    )
    text = platform.profile_text({"gpu": {}, "detail": detail})
    absent = detail.get("absent", {})
    return {
        **_named(case),
        "kept": "profile" not in absent,
        "verdict": "profiled",
        "code": None,
        "message": json.dumps(absent),
        "tags": [],
        "speedup": None,
        "against": None,
        "latency_ms": {},
        "roofline": None,
        "cost_s": detail.get("cost_s", {}),
        "profile": detail,
        "profile_text": text,
    }


def _named(case: Case) -> dict[str, Any]:
    return {
        "part": case.part,
        "platform": case.platform,
        "name": case.name,
        "screened": case.screened,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "referee": harness_hash(),
    }


def run(
    chosen: Sequence[Case], judge: Callable[[Case], dict[str, Any]], *, is_over: Callable[[], bool]
) -> dict[str, dict[str, Any]]:
    """Judge one after another and keep each result at once.

    Args:
        chosen: what is judged.
        judge: judges one.
        is_over: whether no other may begin.

    Returns:
        What this run has found, by key.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in chosen:
        if is_over():
            print(f"the time is over: {len(chosen) - len(found)} are left for the next run", file=sys.stderr)
            break
        result = judge(case)
        found[case.key] = result
        speedup = (result["speedup"] or {}).get("eager")
        print(
            "as it must be" if result["kept"] else "NOT as it must be",
            case.key,
            result["verdict"],
            result["code"] or "",
            "" if speedup is None else f"{speedup[0]:.4f} ({speedup[1]:.4f} to {speedup[2]:.4f})",
            f"{result['cost_s'].get('total', 0.0):.1f} s",
            "" if result["kept"] else result["message"][:300],
            flush=True,
        )
    return found


def main() -> int:
    """Run; exit status 3 without a GPU, 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m benchmarks.gpu --only kit A/A attack --for-s 300",
    )
    parser.add_argument("--device", type=int, default=0, help="which GPU, in the order of the bus")
    parser.add_argument("--repeats", type=int, default=3, help="how often the op is measured against itself")
    parser.add_argument("--only", nargs="*", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--sanitize", action="store_true", help="profiles with compute-sanitizer, which takes minutes")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--again", action="store_true", help="judge those that have a result once more")
    parser.add_argument("--builds", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="compilers at once")
    options = parser.parse_args()
    gpu = gpu_at(options.device)
    if gpu is None:
        print(
            f"no NVIDIA driver answers for GPU {options.device}: nothing was run, nothing was written", file=sys.stderr
        )
        return NO_GPU
    started = time.perf_counter()
    head = {
        "device": gpu.name,
        "compute_capability": gpu.compute_capability,
        "driver": gpu.driver,
        "command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]),
    }
    kept_at = RESULTS / "gpu.json"
    kept: dict[str, Any] = json.loads(kept_at.read_text())["runs"] if kept_at.is_file() else {}
    platforms = {name: load_platform(name, options.device) for name in PLATFORMS}
    sandbox, cache = ProcessSandbox(), BuildCache(RESULTS / ".cache" / "gpu")

    def is_over() -> bool:
        return time.perf_counter() - started > options.for_s

    def judge(case: Case) -> dict[str, Any]:
        platform, sanitize = platforms[case.platform], options.sanitize
        result = judged(case, platform, sandbox, cache, options.device, sanitize=sanitize)
        kept[case.key] = result
        _write(kept_at, json.dumps({**head, "runs": kept}, indent=1, sort_keys=True) + "\n")
        _write(RESULTS / "gpu.md", page_of(head, kept))
        return result

    found: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        chosen = [
            case
            for case in cases(options.repeats)
            if case.part == part
            and (options.only is None or part in options.only)
            and (options.again or case.key not in kept)
        ]
        if chosen and not is_over():
            built_s = build_slow_ones(chosen, platforms, sandbox, cache, options.device, at_once=options.builds)
            if built_s:
                print(f"{part}: built what takes nvcc, in {built_s:.0f} s", flush=True)
            found |= run(chosen, judge, is_over=is_over)
    if not found:
        print("nothing was left to judge; --again judges what has a result once more", file=sys.stderr)
    return 0 if all(each["kept"] for each in found.values()) else 1


def _write(path: Path, text: str) -> None:
    """Whole or not at all, whenever the process ends."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def judged(
    case: Case, platform: Platform, sandbox: Sandbox, cache: BuildCache, device: int, *, sanitize: bool = False
) -> dict[str, Any]:
    """What came of a case."""
    if case.part == "profile":
        return profiled(case, platform, sandbox, cache, device, sanitize=sanitize)
    found = evaluate(
        task_from_source(case.op, name=case.name),
        case.source,
        sandbox=sandbox,
        platform=platform,
        device=device,
        effort=case.effort,
        champion_source=case.against or None,
        cache=cache,
    )
    if found.detail and not kept_of(case, found)["kept"]:
        print(found.detail[-3000:], file=sys.stderr, flush=True)
    return kept_of(case, found)


def build_slow_ones(
    chosen: Sequence[Case],
    platforms: Mapping[str, Platform],
    sandbox: Sandbox,
    cache: BuildCache,
    device: int,
    *,
    at_once: int,
) -> float:
    """Build what takes long to compile, several at once, since nothing is timed meanwhile.

    Returns:
        Seconds that it took; 0 if there was nothing.
    """
    slow = [case for case in chosen if platforms[case.platform].builds_slowly(case.source)]
    if not slow:
        return 0.0
    start = time.perf_counter()

    def build(case: Case) -> None:
        task, platform = task_from_source(case.op, name=case.name), platforms[case.platform]
        build_ahead(
            task, case.source, sandbox=sandbox, platform=platform, device=device, effort=case.effort, cache=cache
        )

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(build, slow))
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())

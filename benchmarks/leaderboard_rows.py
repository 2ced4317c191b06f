"""Made-up jobs and evaluations in the proportions of a benchmark week: tasks, models, platforms, devices,
with ten rounds a job at most.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from db.records import MEASUREMENTS

Rows = dict[str, list[dict[str, Any]]]
"""By table, in the order in which they can be inserted."""

TASKS = tuple(f"task_{number:03}" for number in range(270))
MODELS = tuple(f"vendor/model-{letter}" for letter in "abcdefghijkl")
DEVICES = {
    "cpu": ("CPU A", "CPU B"),
    "cuda": ("GPU A", "GPU B"),
    "triton": ("GPU A", "GPU B"),
}
ROUNDS = 10
_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
_SOURCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    ...\n" * 4
_DETAIL = {"schema": "kernelwright.evaluation/1", "detail": "x" * 400}


def rows_of(size: int, at_once: int) -> Iterator[Rows]:
    """Rows for so many evaluations, some thousand at once; the same ones every time."""
    random_ = random.Random(size)  # noqa: S311 made-up figures
    yield {"tasks": [_task(number) for number in range(len(TASKS))]}
    lanes = [
        (task, model, platform, device)
        for model in MODELS
        for platform, devices in DEVICES.items()
        for device in devices
        for task in range(len(TASKS))
    ]
    per_job = min(ROUNDS, max(1, size // len(lanes)))
    jobs = -(-size // per_job)
    chunk: Rows = {"jobs": [], "candidates": [], "evaluations": []}
    made = 0
    for job in range(jobs):
        task, model, platform, device = lanes[job % len(lanes)]
        skill = random_.lognormvariate(0.3, 0.4)
        chunk["jobs"].append(_job(job, task, model, platform, random_))
        for number in range(1, min(per_job, size - made) + 1):
            made += 1
            chunk["candidates"].append(_candidate(made, job, number))
            chunk["evaluations"].append(_evaluation(made, number, platform, device, skill, random_))
        if len(chunk["evaluations"]) >= at_once:
            yield chunk
            chunk = {"jobs": [], "candidates": [], "evaluations": []}
    if chunk["evaluations"]:
        yield chunk


def _task(number: int) -> dict[str, Any]:
    dtype = ("float32", "float16", "bfloat16")[number % 3]
    return {
        "id": number + 1,
        "suite": "bench" if number % 2 == 0 else "other",
        "name": TASKS[number],
        "source_hash": f"{number:064x}",
        "source": _SOURCE,
        "category": "other",
        "dtype": dtype,
        "created_at": _BEGUN,
    }


def _job(number: int, task: int, model: str, platform: str, random_: random.Random) -> dict[str, Any]:
    at = _BEGUN + timedelta(seconds=number)
    return {
        "id": number + 1,
        "task_id": task + 1,
        "kind": "optimize",
        "platform": platform,
        "sandbox": "docker",
        "model": model,
        "strategy": "judge",
        "options": {"rounds": ROUNDS},
        "status": "done",
        "cancel_requested": False,
        "rounds_done": ROUNDS,
        "cost_usd": random_.uniform(0.01, 2.0),
        "tokens": 10_000,
        "created_at": at,
        "user": f"user{number % 7}",
        "priority": 0,
        "fair_tag": number,
        "attempt": 1,
        "unsettled_usd": 0.0,
    }


def _candidate(number: int, job: int, round_: int) -> dict[str, Any]:
    return {
        "id": number,
        "job_id": job + 1,
        "round": round_,
        "hash": f"{number:064x}",
        "source": _SOURCE,
        "created_at": _BEGUN + timedelta(seconds=number),
    }


def _evaluation(
    number: int, round_: int, platform: str, device: str, skill: float, random_: random.Random
) -> dict[str, Any]:
    verdict = random_.choices(("passed", "wrong_output", "build_failed", "sandbox_error"), (60, 20, 18, 2))[0]
    passed = verdict == "passed"
    speedup = skill * random_.uniform(0.6, 1.2) if passed else None
    figures = {} if speedup is None else _figures(speedup, random_)
    tags = ["custom_kernel", *(["noisy"] if random_.random() < 0.03 else [])] if passed else []
    return {
        "id": f"{number:032x}",
        "candidate_id": number,
        "round": round_,
        "platform": platform,
        "device": device,
        "sandbox": "docker",
        "verdict": verdict,
        "message": "correct" if passed else "row 3 differs",
        "tags": tags,
        **{name: figures.get(name) for name in MEASUREMENTS},
        "result": _DETAIL,
        "created_at": _BEGUN + timedelta(seconds=number),
    }


def _figures(speedup: float, random_: random.Random) -> dict[str, float]:
    compile_ = speedup * random_.uniform(0.5, 1.1)
    eager_ms = random_.lognormvariate(0.0, 1.0)
    return {
        "speedup": speedup,
        "speedup_low": speedup * 0.99,
        "speedup_high": speedup * 1.01,
        "speedup_compile": compile_,
        "speedup_compile_low": compile_ * 0.99,
        "speedup_compile_high": compile_ * 1.01,
        "candidate_ms": eager_ms / speedup,
        "eager_ms": eager_ms,
        "compile_ms": eager_ms * compile_ / speedup,
        "roofline_fraction": random_.uniform(0.05, 0.95),
    }

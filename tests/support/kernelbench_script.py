"""Runs KernelBench's own `benchmark_eval_analysis.py`, unchanged, on this project's results.

Nothing of KernelBench is part of this repository: a checkout of it is given. The script takes a level for complete: it
counts a problem of the level's folder without a result as a failure. So it runs in a tree that holds the checkout's
`scripts` and `src` by links, and a level with the problems of the results. It needs a Python with what it imports
(torch, openai, litellm, pydra-config, tabulate, python-dotenv, tqdm).
"""

import ast
import hashlib
import json
import math
import os
import random
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from db.records import BatchRecord, JobStatus
from service.batches.forms import KernelBenchForm
from service.batches.manage import BatchDetails, BatchLine
from service.batches.results import BatchJob, groups_of

SCRIPT = "scripts/benchmark_eval_analysis.py"
PASS_AT_K = "scripts/eval_from_generations.py"
READS = (SCRIPT, "src/kernelbench/score.py", "src/kernelbench/dataset.py", PASS_AT_K)

Row = tuple[str, int, str, bool, bool, float | None, float | None, float | None]
"""A job: task, sample, outcome, compiled, whether its times count, speedup, eager and candidate in milliseconds."""


def generated_rows(seed: int, *, suite: str, tasks: int, samples: int) -> list[Row]:
    """Results as models give them: some tasks never solved, some noisy, some slower, some far faster."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for task in range(1, tasks + 1):
        name, eager_ms, ease = f"{suite}/{task}_op_{task}", 10 ** rng.uniform(-1, 2), rng.random()
        for sample in range(1, samples + 1):
            if rng.random() > ease:
                rows.append((name, sample, "failed", rng.random() < 0.6, False, None, None, None))
                continue
            speedup, measured_ms = math.exp(rng.gauss(0.4, 0.8)), eager_ms * math.exp(rng.gauss(0, 0.02))
            counts = rng.random() < 0.8
            rows.append((name, sample, "passed", True, counts, speedup, measured_ms, measured_ms / speedup * 1.01))
    return rows


def details_of(rows: list[Row]) -> BatchDetails:
    """A batch with these jobs, of one model on one platform."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    jobs = tuple(
        BatchJob(
            **dict.fromkeys(_MEASURED),
            batch=1,
            job=number,
            task=task,
            source_hash="0" * 64,
            category="reduce",
            dtype="float32",
            platform="cpu",
            model="openai/m",
            strategy="judge",
            sample=sample,
            status=JobStatus.DONE,
            stop_reason="rounds",
            outcome="passed" if outcome == "passed" else "failed",
            compiled=compiled,
            reason="" if counts else "noisy" if outcome == "passed" else "wrong_output",
            verdict="passed" if outcome == "passed" else None,
            counts=counts,
            tags=("custom_kernel",) if counts else ("noisy",) if outcome == "passed" else (),
            speedup=speedup,
            candidate_ms=candidate_ms,
            eager_ms=eager_ms,
            device="CPU" if outcome == "passed" else None,
            sandbox="docker",
            rounds=1,
            tokens=0,
            cost_usd=0.0,
            unsettled_usd=0.0,
            created_at=at,
        )
        for number, (task, sample, outcome, compiled, counts, speedup, eager_ms, candidate_ms) in enumerate(rows, 1)
    )
    line = BatchLine(BatchRecord(1, "generated", "local", {}, None, False, at), {JobStatus.DONE: len(jobs)}, 0.0)
    return BatchDetails(line, "eager", groups_of(jobs, "eager"), jobs, ())


_MEASURED = (
    *("speedup_low", "speedup_high", "speedup_compile", "speedup_compile_low", "speedup_compile_high", "compile_ms"),
    *("speedup_best", "speedup_best_low", "speedup_best_high", "best_baseline"),
    *("roofline_fraction", "candidate_hash", "evaluation", "started_at", "finished_at"),
)


def run_script(checkout: Path, python: str, form: KernelBenchForm, folder: Path) -> tuple[str, dict[str, Any]]:
    """What the script prints for these results, and the JSON that it writes. `folder` is an empty one to work in."""
    files = {
        "runs/run/eval_results.json": form.eval_results,
        "runs/run/pass_at_k_results.json": form.pass_at_k,
        "baseline.json": form.baseline,
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return run_on_files(checkout, python, folder, level=form.level, problems=list(form.problems.values()))


def run_on_files(
    checkout: Path, python: str, folder: Path, *, level: int, problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """The same for files that lie in `folder` already: `runs/run/` and `baseline.json`."""
    tree = folder / "tree"
    level_folder = tree / "KernelBench" / f"level{level}"
    level_folder.mkdir(parents=True)
    for name in ("scripts", "src"):
        (tree / name).symlink_to(checkout.absolute() / name)
    for problem in problems:
        (level_folder / problem).write_text("# the script reads names alone\n")
    out = folder / "analysis.json"
    given = {
        "run_name": "run",
        "level": str(level),
        "hardware": "none",
        "baseline": "none",
        "baseline_file": str(folder / "baseline.json"),
        "eval_results_dir": str(folder / "runs"),
        "output_file": str(out),
    }
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [python, str(tree / SCRIPT), *(f"{name}={value}" for name, value in given.items())],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{SCRIPT} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.replace(str(folder), "FOLDER"), json.loads(out.read_text())


def their_pass_at_k(checkout: Path, python: str, n: int, c: int, k: int) -> float:
    """pass@k by KernelBench's own `calc_pass_at_k`, cut out of a file that imports a cloud's client."""
    text = (checkout / PASS_AT_K).read_text()
    (function,) = (
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "calc_pass_at_k"
    )
    call = f"print(repr(float(calc_pass_at_k({n}, {c}, {k}))))"
    program = f"import numpy as np\n{ast.get_source_segment(text, function)}\n{call}"
    return float(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout)


def digests(checkout: Path) -> dict[str, str]:
    """The SHA-256 of each file of the checkout whose code speaks."""
    return {name: hashlib.sha256((checkout / name).read_bytes()).hexdigest() for name in READS}


def read_by_script(form: KernelBenchForm) -> dict[str, Any]:
    """What the script's figures depend on in the files that it reads."""
    samples = {
        number: [[each[name] for name in ("sample_id", "compiled", "correctness", "runtime")] for each in tries]
        for number, tries in form.eval_results.items()
    }
    (level,) = form.baseline.values()
    means = {name: each["mean"] for name, each in level.items()}
    return {"samples": samples, "baseline": means, "pass_at_k": form.pass_at_k["averages"]}

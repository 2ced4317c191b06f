"""Results in the forms of other projects: the files that KernelBench and MultiKernelBench write and read.

Both divide the mean of a baseline's times by the mean of a candidate's, each measured for itself. Here a speedup is
measured as one figure, from pairs of calls (docs/timing.md). So that their division gives the speedup that this project
vouches for, a candidate's time in these forms is the task's baseline divided by the speedup that figures count. What
was measured stands beside it. The times of a baseline are the medians of this batch's evaluations of the task.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from service.batches.manage import BatchDetails
from service.batches.results import BatchJob, sample_of
from service.batches.statistics import PASS_AT, Sample, pass_at_k
from service.errors import BadRequest
from tasks.outcomes import Verdict, clock_of
from tasks.restrict import split_ref

_LEVEL = re.compile(r"level(\d{1,4})")
_UNTIMED_MS = 1.0  # of a task that no sample was timed on: in a form that needs a number, and used by no ratio but 1


@dataclass(frozen=True)
class KernelBenchForm:
    """The results of one model on one platform for one suite, as KernelBench's `benchmark_eval_analysis.py` reads them.

    Attributes:
        level: the level; a suite that names none is level 1.
        problems: the file names of the problems, by problem id.
        eval_results: of `eval_results.json`.
        baseline: of the file in `results/timing`.
        pass_at_k: of `pass_at_k_results.json`.
    """

    level: int
    problems: dict[str, str]
    eval_results: dict[str, list[dict[str, Any]]]
    baseline: dict[str, dict[str, dict[str, Any]]]
    pass_at_k: dict[str, Any]


@dataclass(frozen=True)
class MultiKernelBenchForm:
    """The results of one model on one platform in MultiKernelBench's form.

    Attributes:
        language: its name for the platform.
        runs: of `result.json`, one for each sample.
        baseline: of the file in `baselines`.
    """

    language: str
    runs: tuple[dict[str, dict[str, Any]], ...]
    baseline: dict[str, dict[str, Any]]


def kernelbench_form(
    details: BatchDetails, *, model: str | None = None, platform: str | None = None, suite: str | None = None
) -> KernelBenchForm:
    """The results of one model on one platform for one suite in KernelBench's form.

    Problem ids are the numbers that tasks' names begin with, or else positions among the names. Samples count from 0.
    `runtime` is in milliseconds, and -1 if nothing passed. Jobs that did not end, or that say nothing about the model,
    are left out, as KernelBench does.

    Raises:
        BadRequest: the batch has several models, platforms or suites and none was chosen, or it lacks the chosen one.
    """
    jobs = list(details.jobs)
    for what, wanted in (("model", model), ("platform", platform), ("suite", suite)):
        known = list(dict.fromkeys(_value(job, what) for job in jobs))
        if wanted is None and len(known) > 1:
            raise BadRequest(f"KernelBench's form holds one {what}; choose --{what}: {', '.join(known)}")
        if wanted is not None and wanted not in known:
            raise BadRequest(f"--{what} {wanted[:80]}: not in this batch; there is: {', '.join(known)}")
        jobs = [job for job in jobs if wanted in (None, _value(job, what))]
    numbers = _problem_ids(jobs)
    files = {number: _file_name(number, name) for name, number in numbers.items()}
    baselines = {name: _baseline(details, [job for job in jobs if _name(job) == name]) for name in numbers}
    results: dict[str, list[dict[str, Any]]] = {}
    for job in sorted(jobs, key=lambda job: (int(numbers[_name(job)]), job.sample or 1, job.job)):
        if (sample := sample_of(job, details.over)) is not None:
            name = _name(job)
            result = _kernelbench_result(job, sample, files[numbers[name]], baselines[name]["mean"])
            results.setdefault(numbers[name], []).append(result)
    level = level_of(jobs[0].suite) if jobs else 1
    named = {files[numbers[name]]: found for name, found in baselines.items()}
    return KernelBenchForm(level, files, results, {f"level{level}": named}, _pass_at_k_results(results))


def multikernelbench_form(details: BatchDetails, *, model: str, platform: str) -> MultiKernelBenchForm:
    """The results of one model on one platform, by op, in MultiKernelBench's form. A sample is a run.

    Jobs that did not end, or that say nothing about the model, are left out.
    """
    jobs = [job for job in details.jobs if ((job.model or ""), job.platform) == (model, platform)]
    names = {(job.suite, _name(job)) for job in jobs}
    plain = [name for _, name in names]
    baselines: dict[str, dict[str, Any]] = {}
    runs: dict[int, dict[str, dict[str, Any]]] = {}
    for suite, name in sorted(names):
        op = name if plain.count(name) == 1 else f"{suite}/{name}"
        of_task = [job for job in jobs if (job.suite, _name(job)) == (suite, name)]
        baselines[op] = _baseline(details, of_task)
        for job in of_task:
            if (sample := sample_of(job, details.over)) is not None:
                result = _multikernelbench_result(job, sample, baselines[op]["mean"])
                runs.setdefault(sample.number, {})[op] = result
    return MultiKernelBenchForm(platform, tuple(runs[number] for number in sorted(runs)), baselines)


def level_of(suite: str) -> int:
    """The level that a suite's name says, as `kernelbench-level2`; 1 if it says none."""
    found = _LEVEL.search(split_ref(suite)[0])
    return int(found[1]) if found and int(found[1]) > 0 else 1


def _value(job: BatchJob, what: str) -> str:
    return {"model": job.model or "", "platform": job.platform, "suite": job.suite}[what]


def _name(job: BatchJob) -> str:
    return job.task.partition("/")[2]


def _problem_ids(jobs: Sequence[BatchJob]) -> dict[str, str]:
    names = sorted({_name(job) for job in jobs})
    numbers = [name.partition("_")[0] for name in names]
    if all(number.isascii() and number.isdecimal() for number in numbers):
        ids = [str(int(number)) for number in numbers]
        if len(set(ids)) == len(names):
            return dict(zip(names, ids, strict=True))
    return {name: str(position) for position, name in enumerate(names, start=1)}


def _file_name(number: str, name: str) -> str:
    """The name of a problem's file: KernelBench finds a problem's number before the first `_`."""
    numbered = name.partition("_")[0]
    return f"{name}.py" if numbered.isdecimal() and str(int(numbered)) == number else f"{number}_{name}.py"


def _baseline(details: BatchDetails, jobs: Sequence[BatchJob]) -> dict[str, Any]:
    """A baseline's times for one task, in milliseconds. A trial is an evaluation's median; without one, no ratio needs
    the mean, which is then 1.
    """
    found = [ms for job in jobs if (ms := job.eager_ms if details.over == "eager" else job.compile_ms)]
    devices = sorted({job.device for job in jobs if job.device is not None})
    return _times(found or [_UNTIMED_MS]) | {
        "num_trials": len(found),
        "hardware": "; ".join(devices),
        "device": "; ".join(dict.fromkeys(job.platform for job in jobs)),
    }


def _times(times_ms: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": fmean(times_ms),
        "std": pstdev(times_ms),
        "min": min(times_ms),
        "max": max(times_ms),
        "num_trials": len(times_ms),
    }


def _kernelbench_result(job: BatchJob, sample: Sample, file_name: str, baseline_ms: float) -> dict[str, Any]:
    metadata: dict[str, Any] = {"problem_name": file_name, "job": job.job, "versions": dict(job.versions)}
    if job.memory != "off":
        metadata["kernelwright_memory"] = job.memory
    if job.reason:
        metadata["kernelwright_reason"] = job.reason
    result = {
        "sample_id": sample.number - 1,
        "compiled": sample.compiled,
        "correctness": sample.passed,
        "metadata": metadata,
        "runtime": -1.0,
        "runtime_stats": {},
    }
    if sample.speed is None:
        return result
    runtime_ms = baseline_ms / sample.speed
    metadata |= {
        "hardware": job.device,
        "sandbox": job.sandbox,
        "speedup": job.speedup,
        "speedup_counts": sample.speedup is not None,
        "timed": clock_of(job.tags).name,
    }
    medians = {"median": job.candidate_ms, "median_eager": job.eager_ms, "median_compile": job.compile_ms}
    stats = _times([runtime_ms]) | medians | {"hardware": job.device}
    return result | {"runtime": runtime_ms, "runtime_stats": stats}


def _pass_at_k_results(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """KernelBench's summary of pass@k, for the k of `PASS_AT` of which every problem has so many samples."""
    fewest = min(map(len, results.values()), default=0)
    ks = [k for k in PASS_AT if k <= fewest]
    problems: dict[str, dict[str, Any]] = {}
    for number, tries in results.items():
        correct = sum(each["correctness"] for each in tries)
        at_k = {f"pass@{k}": pass_at_k(len(tries), correct, k) for k in ks}
        problems[number] = {"total_samples": len(tries), "correct_samples": correct, **at_k}
    return {
        "averages": {f"avg_pass@{k}": fmean(each[f"pass@{k}"] for each in problems.values()) for k in ks},
        "metadata": {
            "total_problems": len(problems),
            "problems_with_samples": len(problems),
            "total_evaluated_samples": sum(each["total_samples"] for each in problems.values()),
            "total_correct_samples": sum(each["correct_samples"] for each in problems.values()),
            **{f"pass@{k}_count": len(problems) for k in ks},
        },
        "problems": problems,
    }


def _multikernelbench_result(job: BatchJob, sample: Sample, baseline_ms: float) -> dict[str, Any]:
    result: dict[str, Any] = {
        "compiled": sample.compiled,
        "correctness": sample.passed,
        "performance": None if sample.speed is None else _times([baseline_ms / sample.speed]),
        "hardware": job.device,
        "cheating": job.reason == Verdict.INTEGRITY,
        "job": job.job,
        "versions": dict(job.versions),
    }
    if not sample.passed:
        result["correctness_info" if sample.compiled else "compile_info"] = job.reason
    return result

"""A store with one of everything that pages show, kept through the functions that jobs keep it through.

The results are those of real evaluations (tests/data/): one that passed, one of a wrong output, one of an op with much
arithmetic. Texts that come from outside are hostile wherever `hostile` is asked for.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agents.protocols import Event
from db.evaluations import results
from db.evaluations.tasks import add_task
from db.jobs import batches, job_queue, jobs, model_runs, workers
from db.records import JobStatus, ModelRegionRecord, Owner
from db.store import Store
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from service.jobs.journal import Journal
from service.jobs.persistence import device_name, measurements_of, outcome_of
from tasks.load import find_task
from tasks.outcomes import candidate_hash
from tasks.task import Task

DATA = Path(__file__).parents[1] / "data"
OWNER = Owner("gpu-7.example", 4242, "boot:1")  # of another host: never taken for dead
SCRIPT = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'`{{7*7}}</textarea></script>"
BIDI = "a\u202eb\u2066c\x1b[31m\x07d"
LONG = "n" * 10_000
HOSTILE = f"{SCRIPT}{BIDI}"

KERNEL = '''"""A kernel: job {job}, round {number}."""
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x) {{
  // variant {number}
  return x.mul({number}.0);
}}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")  # {note}
'''


@cache
def _result(name: str) -> str:
    return (DATA / f"evaluation_{name}.json").read_text()


def evaluation(name: str, *, speedup: float | None = None, spread: float = 0.04, tags=(), **changes) -> Evaluation:
    """A real result, with another speedup (latencies follow) or other tags."""
    found = json.loads(_result(name)) | changes
    if speedup is not None:
        factor = speedup / found["speedup"]["eager"]["value"]
        for each in found["speedup"].values():
            value = each["value"] * factor
            each |= {"value": value, "low": value * (1 - spread), "high": value * (1 + spread)}
        median = found["latency_ms"]["eager"]["median"] / speedup
        found["latency_ms"]["candidate"] = {"median": median, "low": median * 0.98, "high": median * 1.03}
        found["tags"] = ["custom_kernel", *tags]
        found["message"] = f"correct on 9 input families and 56 timed calls; {speedup:.2f}x eager"
    return Evaluation.from_json(found)


@dataclass
class Seeded:
    """A store and what was put into it: jobs, batches and runs by name, candidates of each job by round."""

    store: Store
    jobs: dict[str, int] = field(default_factory=dict)
    candidates: dict[int, dict[int, str]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)

    def journal(self, job_id: int) -> Journal:
        """What a job's events are kept by."""
        return Journal(self.store, job_id, lambda _: None)

    def task(self, ref: str = "starter/gelu_tanh") -> Task:
        """A built-in task."""
        return find_task(ref)

    def start(
        self, name: str, task: Task | None = None, *, model="openai/some-model", batch=None, sample=None, **options
    ):
        """A job that runs on another host."""
        chosen = task or self.task()
        with self.store.write() as session:
            job_id = job_queue.add_queued_job(
                session,
                task_id=_keep(session, chosen),
                kind="optimize",
                platform="cpu",
                model=model,
                strategy="judge",
                options={"rounds": 6, "budget_usd": 2.0, "ref": chosen.id} | options,
                user="ada",
                batch_id=batch,
                sample=sample,
            )
            assert job_queue.take_job(session, job_id, 1, OWNER, worker_id="w-alive", sandbox="docker")
        self.jobs[name] = job_id
        self.candidates[job_id] = {}
        self.journal(job_id)(
            Event("job_started", 0, {"task_id": chosen.id, "platform": "cpu", "model": model, "judge_model": model,
                                     "strategy": "judge", "seed": None, "rounds": 6, "best_hash": None})
        )  # fmt: skip
        return job_id

    def round(
        self, job_id: int, number: int, found: Evaluation, *, note="as before", best=False, text="", sandbox="docker"
    ):
        """A whole round, from its first event to the Judge's advice."""
        record = self.journal(job_id)
        source = KERNEL.format(job=job_id, number=number, note=note)
        digest = candidate_hash(source)
        self.candidates[job_id][number] = digest
        record(Event("round_started", number, {"request": "write" if number == 1 else "improve", "parent": None}))
        record(_call(number, "coder", text))
        record(Event("candidate", number, {"hash": digest, "source": source, "change": f"fuse the loops {text}",
                                           "repeat_of_round": None}))  # fmt: skip
        record(Event("evaluation_started", number, {"hash": digest}))
        evaluation_id = self.evaluate(job_id, number, source, found, sandbox=sandbox)
        outcome = outcome_of(found, load_platform("cpu"), candidate_hash=digest, evaluation_id=evaluation_id)
        record(Event("evaluated", number, outcome.to_json() | {"repeat_of_round": None}))
        if best:
            record(Event("best", number, {"hash": digest, "speedup": outcome.speedup}))
        record(Event("round_done", number, {"verdict": outcome.verdict}))
        record(_call(number, "judge", text))
        record(
            Event("advice", number, {"bottleneck": f"Memory traffic: it reaches 8 % of the limit. {text}",
                                     "evidence": ["latency_ms.eager 39.739", f"speedup.eager 2.10 {text}"],
                                     "change": f"Write results past the cache. {text}", "expected_speedup": 1.3,
                                     "stop": False, "lessons": [f"Stores that stay in the cache cost twice. {text}"],
                                     "mode": "judge-improve", "subject_hash": digest})
        )  # fmt: skip
        return digest

    def evaluate(self, job_id: int, number: int, source: str, found: Evaluation, *, sandbox="docker") -> str:
        """Keep an evaluation of a candidate; its id."""
        with self.store.write() as session:
            digest = candidate_hash(source)
            candidate_id = results.add_candidate(
                session, job_id, round_number=number, candidate_hash=digest, source=source
            )
            evaluation_id = f"{job_id:06x}{number:04x}{digest[:22]}{len(results.list_evaluations(session, job_id)):04x}"
            results.add_evaluation(
                session,
                evaluation_id,
                candidate_id=candidate_id,
                round_number=number,
                platform="cpu",
                device=device_name(found),
                sandbox=sandbox,
                verdict=found.verdict.value,
                code=found.code,
                message=found.message,
                tags=found.tags,
                measurements=measurements_of(found),
                result=found.to_json(),
            )
        return evaluation_id

    def end(self, job_id: int, status: JobStatus, reason: str, error: str | None = None) -> None:
        """End a job as its process would."""
        with self.store.write() as session:
            assert jobs.finish_job(session, job_id, OWNER, status=status, stop_reason=reason, error=error)
            results.add_event(session, job_id, "ended", 6, {"reason": reason, "detail": error or ""})

    def queue(self, name: str) -> int:
        """A job that waits."""
        with self.store.write() as session:
            self.jobs[name] = job_queue.add_queued_job(
                session, task_id=_keep(session, self.task("starter/rmsnorm_gelu")), kind="optimize", platform="cpu",
                model="builtin/compiler", strategy="judge", options={"rounds": 4}, user="bob",
            )  # fmt: skip
        return self.jobs[name]


def seed(store: Store) -> Seeded:
    """One of everything, the hostile job last."""
    made = Seeded(store)
    with store.write() as session:
        for worker_id, status in (("w-alive", None), ("w-lost", workers.set_lost), ("w-stopped", workers.set_stopped)):
            workers.add_worker(session, worker_id, OWNER, platform="cpu", slot=0, device="AMD EPYC, 2 cores",
                               kind="epyc-2", sandbox="docker", version="0.1.0")  # fmt: skip
            if status is not None:
                status(session, worker_id)
    passed, wrong = evaluation("passed", speedup=1.8), evaluation("wrong")
    done = made.start("done")
    made.round(done, 1, wrong)
    made.round(done, 2, passed, best=True)
    made.round(done, 3, evaluation("passed", speedup=2.6, tags=["noisy"]))
    made.round(done, 4, evaluation("passed", speedup=2.4), best=True, note="stores past the cache")
    made.end(done, JobStatus.DONE, "rounds")
    for name, model, speedup, tags in (
        ("tied", "anthropic/other", 2.37, ()),
        ("slow", "openai/small", 0.8, ("slower",)),
        ("beyond", "vendor/too-good", 30.0, ("beyond_roofline",)),
    ):
        job_id = made.start(name, model=model)
        made.round(job_id, 1, evaluation("passed", speedup=speedup, tags=tags), best=True)
        made.end(job_id, JobStatus.DONE, "plateau")
    work = made.start("work", made.task("starter/softcap_attention"), model="builtin/compiler")
    made.round(work, 1, evaluation("work", speedup=1.4), best=True, sandbox="process")
    made.end(work, JobStatus.DONE, "roofline")
    failed = made.start("failed", made.task("starter/mixed_pool"))
    made.round(failed, 1, wrong)
    made.end(failed, JobStatus.FAILED, "model_unavailable", "model openai/some-model: no key in OPENAI_API_KEY")
    for name, status in (("cancelled", JobStatus.CANCELLED), ("interrupted", JobStatus.INTERRUPTED)):
        made.round(made.start(name, made.task("starter/channel_stats")), 1, passed, best=True)
        made.end(made.jobs[name], status, name)
    for name in ("first", "second"):
        _batch(made, name)
    _model_runs(made)
    made.queue("ahead")
    made.queue("queued")
    running = made.start("running", made.task("starter/adamw_step"))
    made.round(running, 1, passed, best=True)
    made.journal(running)(Event("round_started", 2, {"request": "improve", "parent": 1}))
    hostile = Task(name=f"{SCRIPT[:120]}{LONG[:100]}", source=f"# {HOSTILE}\nclass Model: pass\n", suite="local")
    bad = made.start("hostile", hostile, model=f"{HOSTILE}{LONG}")
    made.round(bad, 1, evaluation("wrong", message=HOSTILE + LONG, detail=HOSTILE + LONG), text=HOSTILE, note=HOSTILE)
    made.round(bad, 2, evaluation("passed", speedup=1.2, tags=[SCRIPT]), best=True, text=LONG, note=LONG)
    made.end(bad, JobStatus.FAILED, "llm_error", HOSTILE + LONG)
    return made


EXEMPLAR = Path(__file__).parents[2] / "evaluator/platforms/cpu/prompts/exemplars/activation.py"
"""The candidate of `evaluation_profiled.json`, of the op `torch.nn.functional.mish`."""


def profiled_job(made: Seeded) -> str:
    """A job whose candidate was profiled; the path of the candidate's page."""
    task = Task(name="mish", source="# mish\nclass Model: pass\n", suite="local", category="activation")
    job_id = made.start("profiled", task, model="vendor/profiled")
    source = EXEMPLAR.read_text()
    made.candidates[job_id][1] = candidate_hash(source)
    made.evaluate(job_id, 1, source, evaluation("profiled", speedup=4.9))
    made.end(job_id, JobStatus.DONE, "rounds")
    return f"/jobs/{job_id}/candidates/{candidate_hash(source)}"


def _batch(made: Seeded, name: str) -> None:
    """Three tasks, two models, two tries each; of the second batch everything is a bit faster."""
    faster = 1.0 if name == "first" else 1.3
    with made.store.write() as session:
        batch_id = batches.add_batch(
            session, name=f"{name} try", user="ada", spec={"refused": [["x/y", "no such task"]]}, budget_usd=5.0
        )
    made.batches[name] = batch_id
    for index, ref in enumerate(("starter/gelu_tanh", "starter/mixed_pool", "starter/channel_stats")):
        for model, strength in (("openai/some-model", 2.0), ("anthropic/other", 1.2)):
            for sample in (1, 2):
                job = f"{name}/{ref}/{model}/{sample}"
                job_id = made.start(job, made.task(ref), model=model, batch=batch_id, sample=sample)
                if index == 1 and strength < 2:
                    made.round(job_id, 1, evaluation("wrong"))
                else:
                    speedup = strength * faster * (0.6 + 0.5 * index + 0.05 * sample)
                    made.round(job_id, 1, evaluation("passed", speedup=speedup), best=True)
                made.end(job_id, JobStatus.DONE, "rounds")


PLAN = {
    "torch": "2.13.0", "threads": 2, "eager_ms": 41.5, "compile_ms": 30.25, "compile_s": 19.4, "compile_error": "",
    "kernels_ms": [["cpp_fused_add_mul_pow_rsqrt_0", 6.5]] + [[f"mkl._mkl_linear {n}", 5.0 - n / 4] for n in range(14)],
    "operators": 1234, "stays_eager": [],
    "apart": [{"name": "r03_attention", "share": 0.3}, {"name": "r02_rms_norm", "share": 0.1}],
}  # fmt: skip
REGIONS = (("r01_block", "block", 12, 0.9), ("r02_rms_norm", "normalization", 24, 0.25),
           ("r03_attention", "attention", 12, 0.3), ("r04_mul_silu", "element-wise", 12, 0.06),
           ("r05_add", "element-wise", 1, 0.006))  # fmt: skip


FILES = {"model.py": "class Model: pass\n", "kernels/r02_rms_norm.py": "x = 1\n", "candidate.py": "y = 2\n"}
"""What a run that is proven delivers, but the report."""


def model_run(made: Seeded, name: str, task: Task | None = None, *, model="vendor/kernels", plan=None, regions=REGIONS):
    """A run over a whole model that has its plan; its id."""
    whole = task or Task(name=name, source=f"# {name}\nclass Model: pass\n", suite="local")
    with made.store.write() as session:
        run = job_queue.add_queued_job(
            session, task_id=_keep(session, whole), kind="model", platform="cpu", model=model, strategy="judge",
            user="ada", options={"rounds": 2, "budget_usd": 3.0, "out": "/secret/out"},
        )  # fmt: skip
        job_queue.take_job(session, run, 1, OWNER, worker_id="w1", sandbox="docker")
        model_runs.add_run(session, run)
        records = [
            ModelRegionRecord(region, place, kind, times, 41.5 * share, share, _keep(session, _of(whole, region)), None)
            for place, (region, kind, times, share) in enumerate(regions)
        ]
        model_runs.set_plan(session, run, PLAN if plan is None else plan, records)
    made.models[name] = run
    return run


def model_jobs(made: Seeded, name: str, speedups, task: Task | None = None) -> None:
    """The jobs of a run's regions by name: done with this speedup, without a kernel (None), or running ("")."""
    whole = task or Task(name=name, source=f"# {name}\nclass Model: pass\n", suite="local")
    with made.store.write() as session:
        batch = batches.add_batch(session, name=f"whole model {name}", user="ada", spec={}, budget_usd=3.0)
    for region, speedup in speedups.items():
        job_id = made.start(
            f"models/{name}/{region}", _of(whole, region), model="vendor/kernels", batch=batch, sample=1
        )
        if speedup == "":
            continue
        found = evaluation("wrong") if speedup is None else evaluation("passed", speedup=speedup)
        made.round(job_id, 1, found, best=speedup is not None)
        made.end(job_id, JobStatus.DONE, "rounds")
    with made.store.write() as session:
        model_runs.set_batch(session, made.models[name], batch)


def prove(made: Seeded, name: str, found: Evaluation) -> str:
    """The evaluation of what a run delivers, with which the run ends; the candidate's hash."""
    run = made.models[name]
    source = KERNEL.format(job=run, number=0, note="the whole model")
    evaluation_id = made.evaluate(run, 0, source, found)
    with made.store.write() as session:
        model_runs.set_proof(session, run, evaluation_id)
        model_runs.set_files(session, run, FILES if found.passed else {})
    end_model(made, name, JobStatus.DONE if found.passed else JobStatus.FAILED, "done")
    return candidate_hash(source)


def end_model(made: Seeded, name: str, status: JobStatus, stage: str, error: str | None = None) -> None:
    """How a run ends, in this stage."""
    with made.store.write() as session:
        model_runs.set_stage(session, made.models[name], stage)
        jobs.finish_job(session, made.models[name], OWNER, status=status, error=error)


def trial(name: str, question: str, decision: str, ratio: float | None, taken_out: bool, message: str = "") -> dict:
    """A decision as a run keeps it."""
    return {"name": name, "question": question, "candidate": "a" * 64, "champion": "b" * 64, "decision": decision,
            "ratio": ratio, "taken_out": taken_out, "message": message}  # fmt: skip


def decide(made: Seeded, name: str, trials, kept) -> None:
    """The decisions of a run, and what it keeps."""
    with made.store.write() as session:
        for each in trials:
            model_runs.add_trial(session, made.models[name], each)
        model_runs.set_kept(session, made.models[name], kept)
        model_runs.set_stage(session, made.models[name], "prove")


def _model_runs(made: Seeded) -> None:
    """Runs over whole models: one that is proven, one at work, one that found nothing, a hostile one that failed."""
    model_run(made, "decoder")
    model_jobs(made, "decoder", {"r01_block": None, "r02_rms_norm": 3.1, "r03_attention": 1.7, "r04_mul_silu": 1.1})
    decide(
        made,
        "decoder",
        [
            trial("r03_attention", "passes", "passed", None, False),
            trial("r04_mul_silu", "without", "alike", 1.004, True),
            trial("r02_rms_norm", "without", "worse", 0.87, False),
            trial("r03_attention", "without", "worse", 0.82, False),
        ],
        ["r02_rms_norm", "r03_attention"],
    )
    prove(made, "decoder", evaluation("passed", speedup=1.45))
    model_run(made, "at-work")
    model_jobs(made, "at-work", {"r02_rms_norm": 2.2, "r03_attention": ""})
    asked = {"role": "coder", "purpose": "improve", "model": "vendor/kernels", "key": "second"}
    made.journal(made.jobs["models/at-work/r03_attention"])(Event("llm_started", 2, asked))
    model_run(made, "in-vain", regions=(), plan={"eager_ms": 0.5})
    with made.store.write() as session:
        model_runs.set_kept(session, made.models["in-vain"], [])
    end_model(made, "in-vain", JobStatus.DONE, "done")
    bad = Task(name=f"m{SCRIPT[:110]}", source=f"# {HOSTILE}\nclass Model: pass\n", suite="local")
    plan = PLAN | {
        "compile_ms": None, "compile_error": HOSTILE + LONG, "kernels_ms": [[HOSTILE + LONG, 3.0], ["malformed"]],
        "stays_eager": [{"path": HOSTILE, "module_class": HOSTILE, "reason": HOSTILE + LONG}],
        "apart": [{"name": f"{SCRIPT}{BIDI}", "share": 0.4}],
    }  # fmt: skip
    region = f"{SCRIPT}{BIDI}"[:120]
    model_run(made, "hostile", bad, model=f"{HOSTILE}{LONG}", plan=plan, regions=((region, SCRIPT[:64], 1, 0.4),))
    model_jobs(made, "hostile", {region: 1.3}, bad)
    with made.store.write() as session:
        model_runs.add_trial(session, made.models["hostile"], trial(SCRIPT, SCRIPT, SCRIPT, 1.1, True, HOSTILE + LONG))
    end_model(made, "hostile", JobStatus.FAILED, "optimize", HOSTILE + LONG)


def _of(model: Task, region: str) -> Task:
    """The task of a region."""
    return Task(name=f"{model.name}.{region}", source=f"# {region}\nclass Model: pass\n", suite="regions")


def _call(number: int, role: str, text: str) -> Event:
    data = {
        "key": f"{number}/{role}/0:{text[:8]}", "attempt": 1, "model": "m", "role": role, "purpose": "write",
        "prompt_tokens": 2751, "completion_tokens": 837, "cost_usd": 0.0125, "latency_s": 4.6, "attempts": 1,
        "truncated": False, "messages": [{"role": "user", "content": text}], "reply": text, "reasoning": "",
        "reasoning_tokens": None, "tool_calls": [],
    }  # fmt: skip
    return Event("llm_call", number, data)


def _keep(session, task: Task) -> int:
    return add_task(
        session,
        suite=task.suite,
        name=task.name,
        source_hash=task.source_hash,
        source=task.source,
        category=task.category,
        dtype=task.dtype,
    )

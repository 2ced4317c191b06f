"""Requests and responses on runs over whole models."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from db.records import PLAN_ONLY, WEIGHTS, JobStatus, ModelRunHead, TaskHead
from service.submissions.jobs import OPTIONS
from service.views.evaluation import Ratio
from service.views.models import ModelRunLine, ModelRunView, RegionLine, ShapeLine
from web.api.parameters import TASK_REF, WeightsDigest
from web.api.schemas.jobs import TAGS_DESCRIPTION, JobTask, OpName, RunOptions, Source, body_form

MODEL_EXAMPLE = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(512, 512)

    def forward(self, x):
        return torch.softmax(self.out(torch.tanh(x) * 2.0), dim=-1)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
"""


class _ModelOptions(RunOptions):
    plan_only: bool = Field(default=False, description="Only find where time goes and what there is to gain.")
    weights: WeightsDigest = None


class ModelOfTask(_ModelOptions):
    """A run over a task of the server."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"task": "kernelbench-level3/1_MLP", "rounds": 2}]})

    task: Annotated[str, Field(pattern=TASK_REF, description="suite/name of a task.")]


class ModelOfSource(_ModelOptions):
    """A run over a model of one's own."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source": MODEL_EXAMPLE, "name": "net", "plan_only": True}]}
    )

    source: Source
    name: OpName = "model"


ModelRequest = Annotated[
    Annotated[ModelOfTask, Tag("of_task")] | Annotated[ModelOfSource, Tag("of_source")], Discriminator(body_form)
]


class Interval(BaseModel):
    """A speedup with its 95 % interval."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, ratio: Ratio | None) -> Self | None:
        """Convert a ratio."""
        return None if ratio is None else cls(**asdict(ratio))


class _Run(BaseModel):
    id: int = Field(examples=[1])
    task: JobTask = Field(description="The model as a task.")
    platform: str
    model: str = Field(description="The model that writes kernels.")
    user: str
    status: JobStatus
    stage: str = Field(description="plan, optimize, assemble, prove or done.")
    error: str | None
    batch_id: int | None = Field(description="The batch of the regions' jobs.")
    kept: list[str] | None = Field(description="The regions with a kernel in what is delivered; null: not decided.")
    evaluation_id: str | None = Field(description="The proof: the evaluation of what is delivered.")
    created_at: datetime
    finished_at: datetime | None


class ModelRun(_Run):
    """A run over a whole model. Speedups are those of its proof, of the whole model."""

    speedup: Interval | None
    speedup_compile: Interval | None

    @classmethod
    def of(cls, line: ModelRunLine) -> Self:
        """Convert a run."""
        return cls(**_run(line.run), speedup=Interval.of(line.eager), speedup_compile=Interval.of(line.compile))


class ModelRunPage(BaseModel):
    """A page of runs over whole models, newest first."""

    models: list[ModelRun]
    next_cursor: int | None = Field(description="The value of `?cursor=` for the next page; null on the last page.")


class ModelRegion(BaseModel):
    """A region of a model. Speedups are those of its kernel alone."""

    name: str
    kind: str
    occurrences: int
    eager_ms: float = Field(description="The time of all its occurrences under eager, in one call of the model.")
    share: float = Field(description="That part of the model's time. Regions of different grains overlap.")
    task: JobTask | None
    job_id: int | None = Field(description="The job that looked for a kernel; null: there was too little to gain.")
    job_status: JobStatus | None
    candidate_hash: str | None = Field(description="The job's best kernel.")
    evaluation: str | None = Field(description="The id of that kernel's evaluation.")
    speedup: Interval | None
    speedup_compile: Interval | None
    tags: list[str] = Field(description=TAGS_DESCRIPTION)
    kept: bool | None = Field(description="Whether the kernel is in what is delivered; null: this is not decided.")
    why: str = Field(description="The reason in words; empty while nothing is decided.")

    @classmethod
    def of(cls, line: RegionLine) -> Self:
        """Convert a region."""
        region, best = line.region, line.best
        return cls(
            name=region.name,
            kind=region.kind,
            occurrences=region.occurrences,
            eager_ms=region.eager_ms,
            share=region.share,
            task=None if line.task is None else _task(line.task),
            job_id=region.job_id,
            job_status=None if line.job is None else line.job.status,
            candidate_hash=None if best is None else best.candidate_hash,
            evaluation=None if best is None else best.id,
            speedup=Interval.of(line.eager),
            speedup_compile=Interval.of(line.compile),
            tags=[] if best is None else list(best.tags),
            kept=line.kept,
            why=line.why,
        )


class ModelShape(BaseModel):
    """Other inputs of a model: a list of `get_input_groups()`. Speedups are those of a proof of its own."""

    shape_group: int
    eager_ms: float | None = Field(description="The time of a call under eager, in the plan.")
    compile_ms: float | None
    kept: int | None = Field(description="How many kernels of what is delivered are for it; null: not decided.")
    evaluation: str | None = Field(description="The proof; null: the original code runs for these inputs, or not yet.")
    speedup: Interval | None
    speedup_compile: Interval | None

    @classmethod
    def of(cls, line: ShapeLine) -> Self:
        """Convert a list of inputs."""
        return cls(
            shape_group=line.shape_group,
            eager_ms=line.eager_ms,
            compile_ms=line.compile_ms,
            kept=line.kept,
            evaluation=None if line.proof is None else line.proof.id,
            speedup=Interval.of(line.eager),
            speedup_compile=Interval.of(line.compile),
        )


class ModelTrial(BaseModel):
    """A decision on one kernel, by a trial of the whole model."""

    name: str = Field(description="The region whose kernel it is about; `all`: all kernels in place.")
    question: str = Field(
        description="`passes`: does the model pass with it? `without`: is the model better off without it? `whole`: is"
        " one kernel for all of it better? `proof`: does all of it hold at full precision? `proof without`: does"
        " it hold without this one?"
    )
    decision: str = Field(
        description="better, worse, alike or open; a verdict where the model did not pass; of a"
        " proof also passed, and slower (than eager or torch.compile)."
    )
    ratio: float | None
    taken_out: bool
    message: str
    shape_group: int | None = Field(
        default=None, description="Which list of `get_input_groups()` was timed; null: the inputs of `get_inputs()`."
    )


class ModelRunWhole(_Run):
    """A run over a whole model with all that is known of it, much like what `models show --json` prints."""

    schema_: Literal["kernelwright.model/1"] = Field(default="kernelwright.model/1", alias="schema")
    options: dict[str, Any] = Field(description="The options of the request, without those that are the machine's.")
    plan: dict[str, Any] = Field(
        description="What the capture measured, such as eager_ms, compile_ms, stays_eager and (under torch.compile, by"
        " kernel) kernels_ms; empty before there is a plan."
    )
    regions: list[ModelRegion]
    shapes: list[ModelShape]
    trials: list[ModelTrial]
    proof: dict[str, Any] | None = Field(description="The evaluator's whole result for what is delivered.")

    @classmethod
    def of(cls, view: ModelRunView) -> Self:
        """Convert a run, without paths of the machine that it ran on."""
        run = view.run
        return cls(
            **_run(run),
            schema="kernelwright.model/1",
            options={name: value for name, value in run.options.items() if name in (*OPTIONS, PLAN_ONLY, WEIGHTS)},
            plan=dict(run.plan),
            regions=[ModelRegion.of(line) for line in view.regions],
            shapes=[ModelShape.of(line) for line in view.shapes],
            trials=[
                ModelTrial(**{name: value for name, value in asdict(trial).items() if name != "asked"})
                for trial in view.trials
            ],
            proof=None if view.evaluation is None else dict(view.evaluation.result),
        )


def _run(run: ModelRunHead) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in _Run.model_fields if name not in ("task", "kept")},
        "task": _task(run.task),
        "kept": None if run.kept is None else list(run.kept),
    }


def _task(task: TaskHead) -> JobTask:
    return JobTask(**{name: getattr(task, name) for name in JobTask.model_fields})

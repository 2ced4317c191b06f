"""Requests and responses on tasks and jobs."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from db.records import WEIGHTS, JobRecord, JobStatus, TaskHead
from service.jobs.query import JobDetails, RoundLine
from service.settings import BASELINE_NAMES
from service.submissions.jobs import OPTIONS
from service.translation import MAX_KERNEL_BYTES, TRANSLATED_FROM
from tasks.task import Task
from web.api.parameters import MODEL, TASK_REF

TAGS_DESCRIPTION = "Remarks on a candidate that passed. With `cycles` its figures are counted cycles, not times."

MAX_SOURCE_CHARS = 1024 * 1024
OP_EXAMPLE = "import torch\n\n\ndef op(x, w):\n    return torch.nn.functional.gelu(x * w)\n\n\ndef get_inputs():\n"
OP_EXAMPLE += "    return [torch.randn(2048, 2048), torch.randn(2048)]\n"
_JOB_TASK: dict[str, JsonValue] = {"task": "starter/rmsnorm_gelu", "rounds": 4, "budget_s": 600}
_JOB_SOURCE: dict[str, JsonValue] = {"source": OP_EXAMPLE, "name": "scaled_gelu", "model": "builtin/compiler"}

Source = Annotated[str, Field(min_length=1, max_length=MAX_SOURCE_CHARS, description="Python source of the op.")]
OpName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$", description="The name of the op.")]
Model = Annotated[str, Field(pattern=MODEL, description="LiteLLM's name of a model, or builtin/compiler.")]
Platform = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$", examples=["cpu"])]
Count = Annotated[int, Field(ge=0, le=10**12)]
Amount = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class TaskSummary(BaseModel):
    """A task without its source."""

    task: str = Field(description="suite/name", examples=["starter/rmsnorm_gelu"])
    suite: str
    name: str
    category: str
    dtype: str
    source_hash: str = Field(description="SHA-256 of the source. Results hold for exactly this source.")
    stored_id: int | None = Field(default=None, description="The id of a submitted task.")

    @classmethod
    def of(cls, task: Task | TaskHead, *, named: bool = False) -> Self:
        """Convert a task. `named` leaves out the number of a stored task, for lists by name."""
        return cls(
            task=f"{task.suite}/{task.name}",
            suite=task.suite,
            name=task.name,
            category=task.category,
            dtype=task.dtype,
            source_hash=task.source_hash,
            stored_id=task.id if isinstance(task, TaskHead) and not named else None,
        )


class TaskWhole(TaskSummary):
    """A task with its source."""

    source: str


class TaskPage(BaseModel):
    """A page of tasks."""

    tasks: list[TaskSummary]
    next_cursor: int | None = Field(description="The value of `?cursor=` for the next page; null on the last page.")


class CheckRequest(BaseModel):
    """An op to check."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"source": OP_EXAMPLE, "name": "scaled_gelu"}]}
    )

    source: Source
    name: OpName = "op"


class Checked(BaseModel):
    """Whether source text is a valid op. It is only parsed, not executed."""

    ok: bool
    message: str | None = Field(description="What is wrong, in which line, and what to do.")
    category: str | None = None
    dtype: str | None = None
    source_hash: str | None = None


Baselines = Annotated[
    str,
    Field(
        pattern=rf"^({'|'.join(BASELINE_NAMES)})(,({'|'.join(BASELINE_NAMES)})){{0,9}}$",
        description="What kernels are timed against, by commas; eager is among them.",
        examples=["eager,compile,onnxruntime"],
    ),
]


class JobChoices(BaseModel):
    """The options of a job but its platform and model. Options that are left out have the server's settings."""

    model_config = ConfigDict(extra="forbid", strict=True)  # 1 is not accepted for true, nor "3" for 3

    judge_model: Model | None = None
    strategy: Literal["judge", "sample", "contrastive", "tree", "tools", "screen-then-time"] | None = None
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    seed: Literal["compiler"] | None = None
    budget_usd: Amount | None = None
    budget_tokens: Count | None = None
    budget_s: Amount | None = None
    budget_evaluations: Count | None = None
    plateau_rounds: Annotated[int, Field(ge=0, le=1000)] | None = None
    roofline_target: Annotated[float, Field(gt=0, le=1)] | None = None
    memory: Literal["off", "similar", "all"] | None = Field(
        default=None,
        description="What the job is told of earlier ones: nothing; what they proved on similar ops; on this op, too.",
    )
    baselines: Baselines | None = None
    price: Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?,[0-9]{1,9}(\.[0-9]{1,9})?$")] | None = Field(
        default=None,
        description="Dollars per million tokens, PROMPT,REPLY, for models without a known price. For operators.",
    )


class LargerLimits(BaseModel):
    """Larger limits of a job that goes on: totals over all of its runs. Those that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"budget_usd": 2.0}]})

    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    budget_usd: Amount | None = None
    budget_tokens: Count | None = None
    budget_s: Amount | None = None
    budget_evaluations: Count | None = None


class RunOptions(JobChoices):
    """The options of what is queued on its own."""

    platform: Platform | None = None
    model: Model | None = None
    priority: Literal["low", "normal", "high"] = Field(default="normal", description="`high` is for operators.")

    def options(self) -> dict[str, Any]:
        """The options that were set, by the names of the settings."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}


class JobOptions(RunOptions):
    """The options of a job for one op."""

    translate_from: Platform | None = Field(
        default=None, description="Translate a kernel of this platform: the task's own, or `source_kernel`."
    )
    source_kernel: Annotated[str, Field(min_length=1, max_length=MAX_KERNEL_BYTES)] | None = Field(
        default=None, description="The kernel to translate, for a task that brings none. It is not run."
    )


class JobOfTask(JobOptions):
    """A job for a built-in task."""

    model_config = ConfigDict(json_schema_extra={"examples": [_JOB_TASK]})

    task: Annotated[str, Field(pattern=TASK_REF, description="suite/name of a built-in task.")]


class JobOfSource(JobOptions):
    """A job for an op of one's own."""

    model_config = ConfigDict(json_schema_extra={"examples": [_JOB_SOURCE]})

    source: Source
    name: OpName = "op"


def body_form(body: Any) -> str:
    """The form of a request's body: it names a task or has a source."""
    return "of_task" if (isinstance(body, Mapping) and "task" in body) or hasattr(body, "task") else "of_source"


JobRequest = Annotated[
    Annotated[JobOfTask, Tag("of_task")] | Annotated[JobOfSource, Tag("of_source")], Discriminator(body_form)
]


class JobTask(BaseModel):
    """The task of a job."""

    id: int
    suite: str
    name: str
    source_hash: str
    category: str
    dtype: str
    ref: str


class Job(BaseModel):
    """A job. Costs are in US dollars, times in UTC."""

    id: int = Field(examples=[7])
    task: JobTask
    kind: str = Field(description="`optimize`, `evaluate` for one candidate, or `model` for a whole model.")
    platform: str
    sandbox: str
    model: str | None
    strategy: str | None
    options: dict[str, Any] = Field(description="The options of the request.")
    status: JobStatus
    stop_reason: str | None
    error: str | None
    cancel_requested: bool
    rounds_done: int
    cost_usd: float
    tokens: int
    best_evaluation_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    user: str
    priority: int
    fair_tag: int
    attempt: int
    worker_id: str | None
    batch_id: int | None
    sample: int | None
    unsettled_usd: float = Field(description="An upper bound of the costs of calls whose reply was lost.")

    @classmethod
    def of(cls, job: JobRecord) -> Self:
        """Convert a job, without its task's source, its owner and the options that only the server uses."""
        values = asdict(job)
        values["task"] |= {"ref": job.task.ref}
        public = {*OPTIONS, TRANSLATED_FROM, "ref", "device", "sandbox"}
        public |= {"candidate_hash", "of_job", "profile", "sanitize", "cold", "tolerance", "shape_group", WEIGHTS}
        values["options"] = {name: value for name, value in job.options.items() if name in public}
        return cls.model_validate(values)


class JobPage(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[Job]
    next_cursor: int | None = Field(description="The value of `?cursor=` for the next page; null on the last page.")


class Variant(BaseModel):
    """A candidate of a round in which the Coder handed in several. `change` is what sets it apart from the others."""

    number: int = Field(description="The round.")
    change: str
    verdict: str
    code: str | None
    message: str
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    candidate_hash: str | None
    best: bool
    retracted: bool = Field(description="The evaluation was retracted and counts nowhere.")
    tags: list[str] = Field(default=[], description=TAGS_DESCRIPTION)
    over_best: float | None = Field(default=None, description="The speedup over the best candidate of that time.")
    decision: str | None = Field(default=None, description="What the trial says of it: better, worse, alike or open.")


class Round(Variant):
    """A round of a job. If it has variants, its own fields are those of the one that stands for it."""

    change: str = Field(description="What the candidate was meant to change.")
    variants: list[Variant] = Field(default=[], description="All candidates of a round with several, in order.")

    @classmethod
    def of(cls, line: RoundLine) -> Self:
        """Convert a round."""
        return cls.model_validate(asdict(line))


class PhaseState(BaseModel):
    """A phase of an evaluation. Those that are to come have no `elapsed_s`."""

    name: str = Field(examples=["timing"])
    doing: str = Field(description="What is done in it, in words.")
    now: bool
    elapsed_s: float | None
    usual_s: float | None = Field(description="The median of earlier evaluations on this device.")


class WaitState(BaseModel):
    """Why nothing happens."""

    ahead: int = Field(description="How many jobs, or evaluations of other jobs, are served before.")
    held_by: list[int] = Field(description="Jobs that have what it waits for, five at most.")
    doing: str = Field(description="What the first of them does, in words.")
    workers: int | None = Field(description="Workers alive that could take the job; null: it does not wait for one.")


class ActivityState(BaseModel):
    """What a job that has not ended is doing."""

    phase: str = Field(description="`model`, or the phase of an evaluation; `queued` and `waiting` are waits.")
    doing: str = Field(description="That in words.")
    since: datetime | None = Field(description="When the phase began.")
    elapsed_s: float = Field(description="The evaluation so far without its waits, the call so far, or the wait.")
    usual_s: float | None = Field(description="How long that usually takes, by the median of earlier ones.")
    round: int
    candidate_hash: str | None
    proof: bool = Field(description="It is a measurement at full precision.")
    phases: list[PhaseState]
    waiting: WaitState | None


class JobWhole(BaseModel):
    """A job, its rounds and its best candidate so far: the object that `jobs show --json` prints."""

    schema_: Literal["kernelwright.job/1"] = Field(default="kernelwright.job/1", alias="schema")
    job: Job
    rounds: list[Round]
    best: dict[str, Any] | None = Field(description="The evaluator's whole result for the best candidate.")
    on_leaderboard: str = Field(
        description="What the leaderboard says of this candidate beyond that result: its pooled figure, or that another"
        " evaluation found it wrong. Empty if the result is the figure."
    )
    unsettled_usd: float
    unpriced_calls: int = Field(description="The number of calls without a known price, which `cost_usd` leaves out.")
    summary: dict[str, Any] = Field(description="Figures of the strategy, such as pass_at_k.")
    activity: ActivityState | None = Field(
        description="What it is doing; null: it has ended, or is between two things."
    )
    memory: dict[str, Any] = Field(
        description="What the job was told of earlier ones: `mode`, `kernels` and `lessons`, each with the ids of its"
        " evaluations, and which of these were `retracted` since. The sources of the kernels are left out."
    )

    @classmethod
    def of(cls, details: JobDetails) -> Self:
        """Convert a job with its rounds."""
        return cls(
            schema="kernelwright.job/1",
            job=Job.of(details.job),
            rounds=[Round.of(line) for line in details.rounds],
            best=None if details.best is None else dict(details.best.result),
            on_leaderboard=details.on_leaderboard,
            unsettled_usd=details.end.unsettled_usd,
            unpriced_calls=details.end.unpriced_calls,
            summary=dict(details.end.summary),
            activity=None if details.activity is None else ActivityState.model_validate(asdict(details.activity)),
            memory=details.told.to_json(),
        )

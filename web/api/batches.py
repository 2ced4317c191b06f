"""Batches: start, list, show, export, cancel and resume."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from db.records import JobStatus
from service.batches.export import batch_json, csv_text
from service.batches.manage import BatchLine, list_batches, show_batch
from service.batches.report import MAX_K
from service.batches.spec import make_spec
from service.submissions.batches import cancel_batch_for, public_spec, resume_batch_for, start_batch_for
from web.api.parameters import HEX_64, MAX_ID, MODEL, WORD, Cursor, IdempotencyKey, Limit
from web.api.schemas.jobs import Amount, JobChoices
from web.archives import report_archive
from web.dependencies import Dependencies, Deps
from web.problems import problems
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/batches", tags=["batches"])
_EXAMPLE: dict[str, JsonValue] = {
    "name": "nightly",
    "tasks": ["starter"],
    "models": ["builtin/compiler"],
    "samples": 1,
    "job": {"rounds": 2},
}
BatchId = Annotated[int, Path(ge=1, le=MAX_ID, description="The batch's number.", examples=[1])]
Over = Annotated[Literal["eager", "compile"], Query(description="The baseline of speedups.")]


class BatchRequest(BaseModel):
    """The combinations that a batch tries. `budget_usd` is for all jobs together, the one in `job` for each job."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    name: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f]*$")] = ""
    tasks: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?\[\]!-]{1,100}(/[A-Za-z0-9_.*?\[\]!-]{1,100})?$")]] = (
        Field(
            min_length=1, max_length=5000, description="Suites, tasks as suite/name, or patterns over both (`*`, `?`)."
        )
    )
    models: list[Annotated[str, Field(pattern=MODEL)]] = Field(
        default=["builtin/compiler"], min_length=1, max_length=100
    )
    platforms: list[Annotated[str, Field(pattern=WORD)]] = Field(default=["cpu"], min_length=1, max_length=20)
    whole_models: bool = Field(default=False, description="Each task is a whole model, of which what is hot is found.")
    domain: Literal["finite"] | None = Field(
        default=None,
        description="The inputs that candidates must be right on; `finite`: NaN and infinities are not among them.",
    )
    translate_from: Annotated[str, Field(pattern=WORD)] | None = Field(
        default=None,
        description="Translate the kernels of this platform that the tasks bring.",
    )
    weights: dict[str, Annotated[str, Field(pattern=HEX_64)]] = Field(
        default={},
        max_length=5000,
        description="The digests of weights that the user has sent (`PUT /weights`), by the models' names in `tasks`.",
    )
    samples: Annotated[int, Field(ge=1, le=1000)] = 1
    budget_usd: Amount | None = None
    priority: Literal["low", "normal", "high"] = "normal"
    job: JobChoices = JobChoices()


class Batch(BaseModel):
    """A batch and its progress."""

    id: int
    name: str
    user: str
    budget_usd: float | None
    cancel_requested: bool
    created_at: datetime
    spent_usd: float
    jobs: int
    ended: int
    counts: dict[JobStatus, int] = Field(description="Jobs by status.")
    spec: dict[str, Any] = Field(description="The request, without values that are the server's to set.")

    @classmethod
    def of(cls, line: BatchLine) -> Self:
        """Convert a batch."""
        batch = line.batch
        return cls(
            id=batch.id,
            name=batch.name,
            user=batch.user,
            budget_usd=batch.budget_usd,
            cancel_requested=batch.cancel_requested,
            created_at=batch.created_at,
            spent_usd=line.spent_usd,
            jobs=line.jobs,
            ended=line.ended,
            counts=dict(line.counts),
            spec=public_spec(batch.spec),
        )


class BatchCancelled(Batch):
    """A batch that was cancelled."""

    concerned: int = Field(description="The number of jobs that were cancelled or asked to stop.")


class BatchResume(BaseModel):
    """Options for resuming a batch."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"budget_usd": 30.0}]})

    budget_usd: Amount | None = Field(default=None, description="A new total budget, which includes what was spent.")


class BatchPage(BaseModel):
    """A page of batches, newest first."""

    batches: list[Batch]
    next_cursor: int | None


class BatchWhole(BaseModel):
    """A batch with the figures of each model and platform."""

    batch: Batch
    complete: bool = Field(description="Whether all jobs have ended for good, so that the figures are final.")
    figures: dict[str, Any]


@router.post(
    "",
    status_code=201,
    responses={200: {"model": Batch, "description": "Queued by an earlier request."}, **problems(409)},
)
def start(
    body: BatchRequest, response: Response, deps: Deps, principal: Submitter, key: IdempotencyKey = None
) -> Batch:
    """Queue all jobs of a batch."""
    spec = make_spec(body.model_dump(exclude_none=True))
    batch_id, new = start_batch_for(principal, spec, settings=deps.settings, store=deps.store, key=key)
    response.headers["Location"] = f"/api/v1/batches/{batch_id}"
    if not new:
        response.status_code = 200
    return _batch(deps, batch_id)


@router.get("", responses=problems())
def list_(deps: Deps, _: Viewer, cursor: Cursor = None, limit: Limit = 50) -> BatchPage:
    """List batches, newest first."""
    found = list_batches(deps.store, before=cursor, limit=limit + 1)
    more = len(found) > limit
    return BatchPage(
        batches=[Batch.of(line) for line in found[:limit]], next_cursor=found[limit - 1].batch.id if more else None
    )


@router.get("/{batch_id}", responses=problems(404))
def show(batch_id: BatchId, deps: Deps, _: Viewer, over: Over = "eager") -> BatchWhole:
    """Show a batch with its figures so far."""
    details = show_batch(deps.store, batch_id, over=over)
    figures = {
        name: value for name, value in batch_json(details).items() if name != "batch"
    }  # it may contain paths on the server
    return BatchWhole(batch=Batch.of(details.line), complete=details.complete, figures=figures)


@router.get(
    "/{batch_id}/export.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems(404)},
)
def export(batch_id: BatchId, deps: Deps, _: Viewer, over: Over = "eager") -> Response:
    """A batch as CSV, with one line for each job."""
    headers = {"Content-Disposition": f'attachment; filename="batch-{batch_id}.csv"'}
    return Response(csv_text(show_batch(deps.store, batch_id, over=over)), media_type="text/csv", headers=headers)


@router.get(
    "/{batch_id}/report.zip",
    response_class=Response,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404, 409),
    },
)
def report(
    batch_id: BatchId,
    deps: Deps,
    _: Viewer,
    over: Over = "eager",
    k: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_K)]],
        Query(max_length=20, description="The k of Compile@k, Pass@k and SpeedUp@k; left out: those that fit."),
    ] = [],  # noqa: B006
) -> Response:
    """Tables (LaTeX, Markdown), plots (SVG), settings and results of a batch, as files of a .zip archive."""
    return report_archive(deps, batch_id, over=over, ks=k)


@router.post("/{batch_id}/cancel", responses=problems(404))
def cancel(batch_id: BatchId, deps: Deps, principal: Submitter) -> BatchCancelled:
    """Cancel a batch. Queued jobs are cancelled; running jobs stop and keep their best candidate so far."""
    concerned = cancel_batch_for(principal, batch_id, store=deps.store)
    return BatchCancelled(**dict(_batch(deps, batch_id)), concerned=concerned)


@router.post("/{batch_id}/resume", responses=problems(404))
def resume(batch_id: BatchId, deps: Deps, principal: Submitter, body: BatchResume | None = None) -> Batch:
    """Put the jobs of a batch that ended early back into the queue."""
    budget_usd = None if body is None else body.budget_usd
    resume_batch_for(principal, batch_id, budget_usd=budget_usd, settings=deps.settings, store=deps.store)
    return _batch(deps, batch_id)


def _batch(deps: Dependencies, batch_id: int) -> Batch:
    return Batch.of(show_batch(deps.store, batch_id).line)

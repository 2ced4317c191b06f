"""The form that submits a job. The op is pasted, uploaded or chosen, and checked before anything is stored."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from service.errors import BadRequest
from service.submissions.access import Principal
from service.submissions.jobs import submit_for
from service.submissions.models import submit_model_for
from service.tasks import find_task
from service.translation import MAX_KERNEL_BYTES
from service.views.submit import submit_choices
from service.views.tasks import task_view
from tasks.load import task_from_source
from tasks.task import Task, TaskError
from tasks.text import MAX_SOURCE_BYTES
from web.dependencies import Dependencies, Deps
from web.pages.parameters import CsrfChecked
from web.pages.render.render import page
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/submit", include_in_schema=False)

_CHECK_URL = "/api/v1/tasks/check"
_WEIGHTS_URL = "/api/v1/weights"
PLAN = "plan"  # the value of the field `whole` that asks for a plan alone
_LINE_NUMBER = re.compile(r"[^\s:]*:(\d{1,6}): ")

_Text = Annotated[str, Form(max_length=300)]


@dataclass(frozen=True)
class FormValues:
    """The values of the form as text, so that they can be shown again."""

    task: str = ""
    source: str = ""
    name: str = ""
    platform: str = ""
    model: str = ""
    strategy: str = ""
    rounds: str = ""
    budget_usd: str = ""
    budget_s: str = ""
    priority: str = "normal"
    origin: str = ""
    kernel: str = ""
    whole: str = ""
    weights: str = ""
    judge_model: str = ""
    seed: str = ""
    budget_tokens: str = ""
    budget_evaluations: str = ""
    domain: str = ""
    memory: str = ""
    baselines: str = ""  # by commas; empty: as the server has it


@router.get("")
def show(
    request: Request,
    deps: Deps,
    principal: Viewer,
    task: Annotated[str, Query(max_length=300)] = "",
    of: Annotated[str, Query(alias="from", max_length=600)] = "",
    source: Annotated[str, Query(max_length=64)] = "",
    whole: Annotated[str, Query(max_length=10)] = "",
) -> HTMLResponse:
    """The form. `from` fills in the source of a task (`suite/name`), `source` selects one of its sources by hash.

    `whole` is `run` or `plan` where the op is to be taken for a whole model.
    """
    form = replace(_default_values(deps), task=task, whole=whole)
    if of:
        suite, _slash, name = of.partition("/")
        known = task_view(deps.store, suite, name, source or None)
        form = replace(form, source=known.source, name=name)
    return _page(request, deps, principal, form)


@router.post("", dependencies=[CsrfChecked])
def submit(
    request: Request,
    deps: Deps,
    principal: Submitter,
    task: _Text = "",
    source: Annotated[str, Form(max_length=MAX_SOURCE_BYTES + 1)] = "",
    name: _Text = "",
    platform: _Text = "",
    model: _Text = "",
    strategy: _Text = "",
    rounds: _Text = "",
    budget_usd: _Text = "",
    budget_s: _Text = "",
    priority: _Text = "normal",
    origin: _Text = "",
    kernel: Annotated[str, Form(max_length=MAX_KERNEL_BYTES + 1)] = "",
    whole: _Text = "",
    judge_model: _Text = "",
    seed: _Text = "",
    budget_tokens: _Text = "",
    budget_evaluations: _Text = "",
    domain: _Text = "",
    weights: Annotated[str, Form(pattern=r"^([0-9a-f]{64})?$")] = "",
    memory: _Text = "",
    baselines: Annotated[tuple[str, ...], Form(max_length=20)] = (),
    do: _Text = "submit",
    file: UploadFile | None = None,
) -> Response:
    """Check the op and, if `do` is `submit`, queue a job. On an error the form is shown again with a message."""
    if file is not None and file.filename:
        data = file.file.read(MAX_SOURCE_BYTES + 1)
        source = data.decode("utf-8", "replace")
        name = name or re.sub(r"^[.-]+|[^A-Za-z0-9_.-]", "_", file.filename.removesuffix(".py"))[:100]
    source = source.replace("\r\n", "\n")  # browsers send CRLF
    search = (platform, model, strategy, rounds, budget_usd, budget_s, priority)
    more = (judge_model, seed, budget_tokens, budget_evaluations, domain, memory, ",".join(baselines))
    form = FormValues(task, source, name, *search, origin, kernel.replace("\r\n", "\n"), whole, weights, *more)
    try:
        op = _op(deps, form)
        if do == "check":
            return _page(
                request,
                deps,
                principal,
                form,
                valid=f"Valid: category {op.category}, {op.dtype}. Nothing of it was run.",
            )
        if form.whole:
            return RedirectResponse(f"/models/{_submit_model(deps, principal, op, form)}", status_code=303)
        if form.weights:
            raise BadRequest("weights: go with a whole model and not with an op; leave them out")
        job_id, _ = submit_for(
            principal,
            op,
            options=_options(form),
            origin=form.origin or None,
            kernel=form.kernel or None,
            domain=form.domain or None,
            priority=form.priority,
            settings=deps.settings,
            store=deps.store,
        )
    except (TaskError, BadRequest) as error:
        line = _LINE_NUMBER.match(str(error)) if isinstance(error, TaskError) and not form.task else None
        return _page(
            request, deps, principal, form, status=422, problem=str(error), line=int(line[1]) if line else None
        )
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)


def _submit_model(deps: Dependencies, principal: Principal, model: Task, form: FormValues) -> int:
    """Queue a run over a whole model; its id.

    Raises:
        BadRequest: it cannot be queued.
    """
    if form.domain:
        raise BadRequest("domain: goes with an op and not with a whole model; leave it at all inputs")
    if form.origin or form.kernel:
        raise BadRequest("translate a kernel: goes with an op and not with a whole model; leave it empty")
    run_id, _ = submit_model_for(
        principal,
        model,
        options=_options(form),
        plan_only=form.whole == PLAN,
        weights=form.weights or None,
        priority=form.priority,
        settings=deps.settings,
        store=deps.store,
    )
    return run_id


def _op(deps: Dependencies, form: FormValues) -> Task:
    if form.task:
        return find_task(form.task, store=deps.store, files=False)
    return task_from_source(form.source, name=form.name or "op", where=form.name or "op")


def _options(form: FormValues) -> dict[str, object]:
    """The options of the job; fields that are empty are as the server has them.

    Raises:
        BadRequest: A number is malformed.
    """
    given: dict[str, object] = {
        name: getattr(form, name)
        for name in ("platform", "model", "judge_model", "strategy", "seed", "memory", "baselines")
    }
    for key, kind, what in (
        ("rounds", int, "rounds: give a whole number from 1"),
        ("budget_usd", float, "budget: give dollars, such as 2.50, or leave it empty"),
        ("budget_s", float, "time: give seconds, or leave it empty"),
        ("budget_tokens", int, "tokens: give a whole number, or leave it empty"),
        ("budget_evaluations", int, "evaluations: give a whole number, or leave it empty"),
    ):
        text = str(getattr(form, key)).strip()
        if not text:
            continue
        try:
            given[key] = kind(text)
        except ValueError as error:
            raise BadRequest(f"{what} (not {text[:40]!r})") from error
    return {key: value for key, value in given.items() if value != ""}


def _default_values(deps: Dependencies) -> FormValues:
    settings = deps.settings
    return FormValues(
        platform=settings.platform,
        model=settings.model,
        strategy=settings.strategy,
        memory=settings.memory,
        baselines=settings.baselines,
        rounds=str(settings.rounds),
        budget_usd="" if settings.budget_usd is None else f"{settings.budget_usd:g}",
        budget_s="" if settings.budget_s is None else f"{settings.budget_s:g}",
        judge_model=settings.judge_model or "",
        seed=settings.seed or "",
        budget_tokens="" if settings.budget_tokens is None else str(settings.budget_tokens),
        budget_evaluations="" if settings.budget_evaluations is None else str(settings.budget_evaluations),
    )


def _page(
    request: Request,
    deps: Dependencies,
    principal: Principal,
    form: FormValues,
    *,
    status: int = 200,
    problem: str = "",
    valid: str = "",
    line: int | None = None,
) -> HTMLResponse:
    return page(
        request,
        "submit.html",
        status=status,
        form=form,
        server=_default_values(deps),
        problem=problem,
        valid=valid,
        wrong_line=line,
        choices=(choices := submit_choices(deps.settings, deps.store, principal)),
        combinations=asdict(choices.combinations),
        weights_url=_WEIGHTS_URL,
        check_url=_CHECK_URL,
    )

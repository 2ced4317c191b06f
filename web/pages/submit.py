"""The form that queues a job: an op is pasted, uploaded or chosen, and read before anything is stored."""

import re
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from service.errors import BadRequest
from service.submissions.jobs import submit_for
from service.tasks import find_task
from service.views.submit import submit_choices
from service.views.tasks import task_view
from tasks.load import task_from_source
from tasks.task import Task, TaskError
from tasks.text import MAX_SOURCE_BYTES
from web.dependencies import Dependencies, Deps
from web.pages.render.forms import OwnForm
from web.pages.render.render import page
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/submit", include_in_schema=False)

_CHECK = "/api/v1/tasks/check"
_LINE = re.compile(r"[^\s:]*:(\d{1,6}): ")

Text = Annotated[str, Form(max_length=300)]


@dataclass(frozen=True)
class Filled:
    """The form as it was sent, so that nothing is to be written twice."""

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


@router.get("")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    task: Annotated[str, Query(max_length=300)] = "",
    of: Annotated[str, Query(alias="from", max_length=600)] = "",
    source: Annotated[str, Query(max_length=64)] = "",
) -> HTMLResponse:
    """The empty form; `from` fills it with the source of a task that is known."""
    form = replace(_defaults(deps), task=task)
    if of:
        suite, _slash, name = of.partition("/")
        known = task_view(deps.store, suite, name, source or None)
        form = replace(form, source=known.source, name=name)
    return _page(request, deps, form)


@router.post("", dependencies=[OwnForm])
def submit(
    request: Request,
    deps: Deps,
    principal: Submitter,
    task: Text = "",
    source: Annotated[str, Form(max_length=MAX_SOURCE_BYTES + 1)] = "",
    name: Text = "",
    platform: Text = "",
    model: Text = "",
    strategy: Text = "",
    rounds: Text = "",
    budget_usd: Text = "",
    budget_s: Text = "",
    priority: Text = "normal",
    do: Text = "submit",
    file: UploadFile | None = None,
) -> Response:
    """Check the op, and queue it if that is what was asked for; the form again, with what is wrong, if it cannot be."""
    if file is not None and file.filename:
        data = file.file.read(MAX_SOURCE_BYTES + 1)
        source = data.decode("utf-8", "replace")
        name = name or re.sub(r"^[.-]+|[^A-Za-z0-9_.-]", "_", file.filename.removesuffix(".py"))[:100]
    source = source.replace("\r\n", "\n")  # as forms send the ends of lines
    form = Filled(task, source, name, platform, model, strategy, rounds, budget_usd, budget_s, priority)
    try:
        op = _op(deps, form)
        if do == "check":
            return _page(
                request, deps, form, valid=f"Valid: category {op.category}, {op.dtype}. Nothing of it was run."
            )
        job_id, _ = submit_for(
            principal, op, options=_options(form), priority=form.priority, settings=deps.settings, store=deps.store
        )
    except (TaskError, BadRequest) as error:
        line = _LINE.match(str(error)) if isinstance(error, TaskError) and not form.task else None
        return _page(request, deps, form, status=422, problem=str(error), line=int(line[1]) if line else None)
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)


def _op(deps: Dependencies, form: Filled) -> Task:
    if form.task:
        return find_task(form.task, store=deps.store, files=False)
    return task_from_source(form.source, name=form.name or "op", where=form.name or "op")


def _options(form: Filled) -> dict[str, object]:
    """What was filled in, as the values that jobs take.

    Raises:
        BadRequest: a number is none.
    """
    given: dict[str, object] = {"platform": form.platform, "model": form.model, "strategy": form.strategy}
    for key, kind, what in (
        ("rounds", int, "rounds: give a whole number from 1"),
        ("budget_usd", float, "budget: give dollars, such as 2.50, or leave it empty"),
        ("budget_s", float, "time: give seconds, or leave it empty"),
    ):
        text = str(getattr(form, key)).strip()
        if not text:
            continue
        try:
            given[key] = kind(text)
        except ValueError as error:
            raise BadRequest(f"{what} (not {text[:40]!r})") from error
    return {key: value for key, value in given.items() if value != ""}


def _defaults(deps: Dependencies) -> Filled:
    settings = deps.settings
    return Filled(
        platform=settings.platform,
        model=settings.model,
        strategy=settings.strategy,
        rounds=str(settings.rounds),
        budget_usd="" if settings.budget_usd is None else f"{settings.budget_usd:g}",
        budget_s="" if settings.budget_s is None else f"{settings.budget_s:g}",
    )


def _page(
    request: Request,
    deps: Dependencies,
    form: Filled,
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
        problem=problem,
        valid=valid,
        wrong_line=line,
        choices=submit_choices(deps.settings, deps.store),
        check_url=_CHECK,
    )

"""The plan of a run: a model captured in a sandbox, its regions, and a task for each."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agents.llm.models import is_builtin
from service.cancellation import Cancelled, CancelToken
from service.device_lock import DeviceLockSandbox
from service.errors import BadRequest
from service.evaluation_context import (
    WAITING,
    EvaluationContext,
    measure_s_for,
    open_evaluation_context,
    read_state,
    wall_s,
)
from service.jobs.export import write_whole
from service.jobs.spec import check_model_platform
from service.settings import MEASURE_S_MAX, Settings
from tasks.declarations import declarations_of
from tasks.load import task_from_source
from tasks.task import Task
from whole_models.amdahl import by_module, by_operator, by_region
from whole_models.capture_run import CaptureCancelled, run_capture
from whole_models.graph import Captured, CaptureFailed, read_captured
from whole_models.region_task import region_task
from whole_models.regions import Region, choose, counted_ms, find_regions, is_bare_product, with_a_block

SUITE = "regions"
"""The suite of the tasks that regions become: `regions/MODEL.rNN_NAME`."""

WHOLE = "whole"
"""The kind of a region that is all of a graph."""

CALLS = 450
"""Calls of eager that an evaluation of a model takes as long as, at least: 430 and 480 for two of 0.4 s."""

CAPTURE_S = 60.0
MODULE_DEPTH = 2  # parts of a module's path in the table of modules

OTHER_SHAPES = "inputs of get_input_groups() run the original code: kernels are for the shapes of get_inputs()"
"""What is told of a model whose file has inputs of other shapes."""


@dataclass(frozen=True)
class Plan:
    """A captured model, its regions by share, those that jobs may be for, and the task of each of these by name.

    `shape_groups`: the model's file has inputs of other shapes, which no kernel is for. `too_slow`: why the model
    cannot be judged in the time that an evaluation has; empty if it can.
    """

    captured: Captured
    regions: tuple[Region, ...]
    chosen: tuple[Region, ...]
    tasks: Mapping[str, Task]
    shape_groups: bool = False
    too_slow: str = ""


def plan_of(model: Task, capture: bytes, settings: Settings) -> Plan:
    """The plan that follows from what `capture_model` returned. `settings.model` is the one that will write kernels.

    Raises:
        BadRequest: the model cannot be captured.
    """
    try:
        captured = read_captured(capture)
    except CaptureFailed as error:
        raise BadRequest(f"{model.id}: {error}") from error
    regions = find_regions(captured)
    candidates = regions if is_builtin(settings.model) else with_a_block(captured, regions)
    chosen = tuple(region for region in candidates if not is_bare_product(captured, region))
    tasks = {
        region.name: task_from_source(
            region_task(captured, region, model_name=model.name), name=f"{model.name}.{region.name}", where=region.name
        )
        for region in chosen
    }
    groups = declarations_of(model.source).shape_groups
    return Plan(
        captured,
        regions,
        chosen,
        {name: _in_suite(task) for name, task in tasks.items()},
        groups,
        too_slow_text(captured.eager_ms, settings),
    )


def too_slow_text(eager_ms: float, settings: Settings) -> str:
    """Why a model whose call takes so long cannot be judged in the time that an evaluation has; empty if it can."""
    needed_s, limit_s = CALLS * eager_ms / 1e3, wall_s(settings)
    if needed_s <= limit_s:
        return ""
    enough_s = measure_s_for(needed_s)
    more = f", or allow more (KERNELWRIGHT_MEASURE_S={enough_s})" if enough_s <= MEASURE_S_MAX else ""
    return (
        f"a call takes {eager_ms / 1e3:.3g} s, and judging a model takes as long as {CALLS} of them: "
        f"{needed_s / 60:.0f} minutes, where an evaluation has {limit_s / 60:.0f}; "
        f"give get_inputs() a smaller batch{more}"
    )


def plan_once(
    model: Task,
    *,
    settings: Settings,
    state: Path | None,
    on_progress: Callable[[str], None],
    cancel: CancelToken,
) -> Plan:
    """Capture a model on this host and plan it. Nothing is stored, and no model that writes kernels is asked.

    Args:
        model: the model as a task.
        settings: the platform, the sandbox and the model that will write kernels.
        state: a safetensors file with the model's weights.
        on_progress: called with a few words on each stage.
        cancel: ends the capture.

    Raises:
        BadRequest: the model or its weights cannot be used, or the platform times no models.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before there was a plan.
    """
    check_model_platform(settings.platform)
    weights = None if state is None else read_state(state)
    with open_evaluation_context(model, settings, own_code_only=True, weights=weights) as context:
        capture = capture_model(context, on_progress=on_progress, cancel=cancel)
    return plan_of(model, capture, settings)


def write_tasks(plan: Plan, folder: Path) -> None:
    """Write the task of each region into a folder, as a file that can be edited and submitted.

    Raises:
        BadRequest: the folder cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadRequest(f"--tasks {folder}: {error.strerror}; name a folder that can be made") from error
    for name, task in plan.tasks.items():
        write_whole(folder / f"{name}.py", task.source)


def plan_json(plan: Plan) -> dict[str, Any]:
    """What the capture measured, as the store keeps it. `apart` are regions that share no operator."""
    captured = plan.captured
    total = counted_ms(captured)
    return {
        "torch": captured.torch,
        "threads": captured.threads,
        "eager_ms": captured.eager_ms,
        "compile_ms": captured.compile_ms,
        "compile_s": captured.compile_s,
        "compile_error": captured.compile_error,
        "kernels_ms": [list(pair) for pair in captured.kernels_ms],
        "stays_eager": [asdict(each) for each in captured.stays_eager],
        "shape_groups": plan.shape_groups,
        "too_slow": plan.too_slow,
        "waited_share": captured.waited_share,
        "noisy": captured.is_noisy,
        "operators": sum(len(graph.nodes) for graph in captured.graphs),
        "apart": [
            {"name": region.name, "share": region.eager_ms / total if total else 0.0}
            for region in choose(captured, plan.regions)
        ],
        "gains": [_finite(asdict(row)) for row in by_region(captured, plan.regions)],
        "modules": [_finite(asdict(row)) for row in by_module(captured, depth=MODULE_DEPTH)],
        "by_operator": [_finite(asdict(row)) for row in by_operator(captured)],
        "cost_s": dict(captured.cost_s),
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row with None for numbers that JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _in_suite(task: Task) -> Task:
    return Task(name=task.name, source=task.source, suite=SUITE, category=task.category, dtype=task.dtype)


def capture_model(context: EvaluationContext, *, on_progress: Callable[[str], None], cancel: CancelToken) -> bytes:
    """What the program that captures and times a model says, from the context's sandbox. The device is held for it.

    Raises:
        BadRequest: the model or its weights cannot be used.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested.
    """
    settings = context.settings
    alone = DeviceLockSandbox(
        context.sandbox, context.locks, on_wait=partial(on_progress, WAITING), cancel=cancel.event
    )
    try:
        return run_capture(
            alone,
            context.task.source,
            state=context.weights,
            compile="compile" in settings.baselines.split(","),
            budget_s=CAPTURE_S,
            memory_mb=settings.memory_mb,
            on_progress=on_progress,
            cancel=cancel.event,
        )
    except CaptureCancelled:
        raise Cancelled from None
    except CaptureFailed as error:
        raise BadRequest(f"{context.task.id}: {error}") from error

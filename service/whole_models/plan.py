"""The plan of a run: a model captured in a sandbox, its regions, and a task for each."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    wall_s,
)
from service.jobs.export import write_whole
from service.jobs.spec import check_model_platform
from service.settings import MEASURE_S_MAX, Settings
from service.weights import read_state
from tasks.declarations import declarations_of
from tasks.load import task_from_source
from tasks.task import REGION_SUITE, Task, TaskError
from whole_models.amdahl import by_module, by_operator, by_region
from whole_models.capture_run import CaptureCancelled, run_capture
from whole_models.graph import Captured, CaptureFailed, Graph, read_captured
from whole_models.region_task import region_task
from whole_models.regions import (
    Region,
    choose,
    counted_ms,
    find_regions,
    is_bare_product,
    named_for,
    with_a_block,
)

WHOLE = "whole"
"""The kind of a region that is all of a graph."""

CALLS = 450
"""Calls of eager that an evaluation of a model takes as long as, at least: 430 and 480 for two of 0.4 s."""

CAPTURE_S = 60.0
MODULE_DEPTH = 2  # parts of a module's path in the table of modules

MAX_GROUPS = 8
"""Lists of `get_input_groups()` that get kernels. The proof holds what is delivered to as many of them."""

GROUPS_BYTES = 64 << 20
"""The most that what is told of the model with these lists may take."""


@dataclass(frozen=True)
class Plan:
    """A model as it was captured with one list of inputs, and its regions.

    Attributes:
        captured: its graphs and times.
        regions: by share.
        chosen: those that jobs may be for.
        tasks: the task of each of these by name. Equal regions of several graphs have one, and so one job.
        too_slow: why the model cannot be judged in the time that an evaluation has; empty if it can.
        shape_group: which list of `get_input_groups()` the inputs are; None: those of `get_inputs()`.
        others: the plans for the other lists of inputs, whose names of regions say which; none of them has others.
        as_it_is: the lists of inputs that run the original code, each with the reason.
    """

    captured: Captured
    regions: tuple[Region, ...]
    chosen: tuple[Region, ...]
    tasks: Mapping[str, Task]
    too_slow: str = ""
    shape_group: int | None = None
    others: tuple["Plan", ...] = ()
    as_it_is: tuple[str, ...] = ()

    @property
    def every(self) -> tuple["Plan", ...]:
        """The plan, and those of the other lists of inputs."""
        return (self, *self.others)

    @property
    def every_task(self) -> Mapping[str, Task]:
        """The tasks of all of them by name."""
        return {name: task for plan in self.every for name, task in plan.tasks.items()}

    @property
    def first_with_task(self) -> Mapping[str, Task]:
        """Each task once, by the name of the first region that it is for."""
        found = dict[str, Task]()
        for name, task in self.every_task.items():
            if all(task is not each for each in found.values()):
                found[name] = task
        return found


def plan_of(model: Task, capture: bytes, settings: Settings, *, groups: frozenset[int] | None = None) -> Plan:
    """The plan that follows from what `capture_model` returned.

    Args:
        model: the model.
        capture: what is known of it.
        settings: how long an evaluation has, and the model that will write kernels.
        groups: the shape groups that have plans; None: those that can be judged in time.

    Raises:
        BadRequest: the model cannot be captured.
    """
    own, *of_groups = unpacked(capture)
    try:
        first = _plan_of(model, read_captured(own), settings, None)
    except CaptureFailed as error:
        raise BadRequest(f"{model.id}: {error}") from error
    others: list[Plan] = []
    as_it_is = []
    for number, each in enumerate(of_groups):
        try:
            captured = read_captured(each)
            known = [taken_by(graph) for plan in (first, *others) for graph in plan.captured.graphs]
            graphs = tuple(graph for graph in captured.graphs if taken_by(graph) not in known)
            if captured.graphs and not graphs:
                continue  # the kernels are the same
            plan = _plan_of(model, replace(captured, graphs=graphs), settings, number)
        except (CaptureFailed, TaskError) as error:
            as_it_is.append(f"get_input_groups()[{number}]: {error}")
            continue
        why = plan.too_slow or ("" if graphs else "nothing of the model could be captured")
        if not why if groups is None else number in groups:
            others.append(plan)
        else:
            as_it_is.append(f"get_input_groups()[{number}]: {why}")
    if first.captured.shape_groups and not of_groups:
        why = (
            "the model is too slow to be judged" if first.too_slow else "it is no function at the top level of the file"
        )
        as_it_is.append(f"get_input_groups(): {why}")
    elif first.captured.shape_groups > len(of_groups):
        as_it_is.append(
            f"get_input_groups()[{len(of_groups)}] and later ones: kernels are for {len(of_groups)} of them"
        )
    return replace(first, others=tuple(others), as_it_is=tuple(as_it_is))


def taken_by(graph: Graph) -> tuple[object, ...]:
    """What the guards of a graph ask of arguments: two graphs with equal ones are for the same calls."""
    arguments, keywords, leaves = graph.called_with
    return (
        graph.path,
        graph.fragment.fingerprint if graph.fragment else "",
        arguments,
        keywords,
        *(
            (type(each.value), each.value)
            if each.tensor is None
            else (each.tensor.dtype, each.tensor.shape, each.tensor.stride)
            for each in leaves
        ),
    )


def _plan_of(model: Task, captured: Captured, settings: Settings, shape_group: int | None) -> Plan:
    regions = find_regions(captured)
    name = model.name
    if shape_group is not None:
        regions = tuple(named_for(region, shape_group) for region in regions)
        name += f" with the inputs of shape group {shape_group}"
    candidates = regions if is_builtin(settings.model) else with_a_block(captured, regions)
    chosen = tuple(region for region in candidates if not is_bare_product(captured, region))
    tasks = dict[str, Task]()
    of_form = dict[str, Task]()
    for region in chosen:
        if region.form not in of_form:
            equal = [each for each in chosen if each.form == region.form and each is not region]
            source = region_task(captured, region, model_name=name, equal=equal)
            task = task_from_source(source, name=f"{model.name}.{region.name}", where=region.name)
            of_form[region.form] = _in_suite(task)
        tasks[region.name] = of_form[region.form]
    return Plan(captured, regions, chosen, tasks, too_slow_text(captured.eager_ms, settings), shape_group)


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
    for name, task in plan.first_with_task.items():
        write_whole(folder / f"{name}.py", task.source)


def plan_json(plan: Plan) -> dict[str, Any]:
    """What the capture measured, as the store keeps it, with the same for the other lists of inputs as `groups`."""
    return {
        **_measured(plan),
        "as_it_is": list(plan.as_it_is),
        "groups": [{"shape_group": each.shape_group, **_measured(each)} for each in plan.others],
    }


def _measured(plan: Plan) -> dict[str, Any]:
    """What a capture measured. `apart` are regions that share no operator."""
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
        "modes": [text for graph in captured.graphs if (text := _mode_text(graph))],
        "notes": list(captured.notes),
        "shape_groups": captured.shape_groups > 0,
        "too_slow": plan.too_slow,
        "waited_share": captured.waited_share,
        "noisy": captured.is_noisy,
        "contradicts": captured.contradicts,
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


def _mode_text(graph: Graph) -> str:
    """In which mode kernels run, where a submodule computes something else in the other one; else empty."""
    if not graph.reads_mode or graph.either_mode:
        return ""
    in_training = [path for path in graph.reads_mode if path in graph.training]
    looking = in_training or list(graph.reads_mode)
    classes = {node.module: node.module_class for node in graph.nodes}
    shown = [f"{path or 'the module itself'} ({classes.get(path, 'a module')})" for path in looking[:2]]
    more = f" and {len(looking) - len(shown)} more" if len(looking) > len(shown) else ""
    about = f"{graph.path or 'the model'} is in {'training' if in_training else 'eval'} mode, on which depends what "
    about += f"{' and '.join(shown)}{more} compute{'' if len(looking) > 1 else 's'}; kernels run in this mode alone"
    return about + ("; for inference, end the constructor with self.eval()" if in_training else "")


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row with None for numbers that JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _in_suite(task: Task) -> Task:
    return Task(name=task.name, source=task.source, suite=REGION_SUITE, category=task.category, dtype=task.dtype)


def capture_model(context: EvaluationContext, *, on_progress: Callable[[str], None], cancel: CancelToken) -> bytes:
    """What the program that captures and times a model says, from the context's sandbox. The device is held for it.

    It runs once for the inputs of `get_inputs()`, and once for each list of `get_input_groups()` unless the model is
    too slow to be judged. `plan_of` reads what is returned. Of a list with which the model fails, that is the reason.

    Raises:
        BadRequest: the model or its weights cannot be used.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested.
    """
    settings = context.settings
    alone = DeviceLockSandbox(
        context.sandbox, context.locks, on_wait=partial(on_progress, WAITING), cancel=cancel.event
    )

    def captured(shape_group: int | None) -> bytes:
        about = "" if shape_group is None else f"get_input_groups()[{shape_group}]: "
        return run_capture(
            alone,
            context.task.source,
            state=context.weights,
            compile="compile" in settings.baselines.split(","),
            budget_s=CAPTURE_S,
            memory_mb=settings.memory_mb,
            shape_group=shape_group,
            on_progress=lambda text: on_progress(about + text),
            cancel=cancel.event,
        )

    try:
        own = captured(None)
        first, of_groups, room = read_captured(own), list[bytes](), GROUPS_BYTES
        wanted = declarations_of(context.task.source).shape_groups and not too_slow_text(first.eager_ms, settings)
        for number in range(min(MAX_GROUPS, first.shape_groups) if wanted else 0):
            try:
                found = captured(number)
                read_captured(found)
                if len(found) > room:
                    raise CaptureFailed("sandbox", f"captures of other inputs take more than {GROUPS_BYTES >> 20} MiB")
                room -= len(found)
            except CaptureFailed as error:
                found = error.to_json()
            of_groups.append(found)
    except CaptureCancelled:
        raise Cancelled from None
    except CaptureFailed as error:
        raise BadRequest(f"{context.task.id}: {error}") from error
    return packed([own, *of_groups])


def packed(captures: Sequence[bytes]) -> bytes:
    """What the program said of several lists of inputs, as one piece for the store."""
    return json.dumps([each.decode("utf-8", "replace") for each in captures], ensure_ascii=False).encode()


def unpacked(kept: bytes) -> list[bytes]:
    """What `packed` was given. Versions before kept what was said of one list of inputs as it was."""
    try:
        found = json.loads(kept) if kept.startswith(b"[") else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found) or not found:
        return [kept]
    return [each.encode("utf-8", "replace") for each in found]

"""The whole capture of a model: loads it, exports it, runs and times it, and says what it saw."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .compiled import compiled_times
from .errors import CaptureError, Refused, line_of
from .export import Exported, export_part
from .fragments import fragments_of
from .load import Originals, count_groups, load_model, make_inputs
from .parts import Graphs, Part, export_parts, times_of_modules
from .timing import RunWaits, call_time_ms, one_thread, operator_times_ms
from .weights import load_state

MAX_NODES = 20_000  # as the host has it
_EAGER_SHARE, _OPERATORS_SHARE, _EXPORT_SHARE = 0.1, 0.33, 0.5  # of the budget, at most
_EAGER_S, _OPERATORS_S = 2.0, 4.0  # at most
_MEASURED_AGAIN, _AGAIN_SHARE = 2, 0.5  # how often, while so much of the budget is left


def capture(
    source: str,
    *,
    state: Sequence[Sequence[Any]] = (),
    elements: bytes = b"",
    compile: bool,
    budget_s: float,
    shape_group: int | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The description of a model, as `whole_models/graph.py` reads it.

    Args:
        source: the model's file.
        state: the rows of its weights (`weights.load_state`); empty: the weights that the constructor makes.
        elements: the bytes of these.
        compile: whether it is run under torch.compile, too.
        budget_s: how long this should take; torch.compile gets what the rest leaves.
        shape_group: the inputs are those of `get_input_groups()[shape_group]`; None: those of `get_inputs()`.
        on_stage: called with a few words on what is done.

    Raises:
        CaptureError: the model fails, or the weights are not those of it.
    """
    stages = _Stages(on_stage)
    ends = time.monotonic() + budget_s
    with stages("load", "loading the model"):
        model, module = load_model(source)
        notes = load_state(model, state, elements) if state else []
        groups = count_groups(module)
        inputs = make_inputs(module, shape_group)
    with torch.no_grad():
        with stages("eager", "running the model"):
            originals = Originals(model, inputs)
            _first_call(model, inputs)
            originals.forget_unchanged()
            run = lambda: model(*inputs)  # noqa: E731
            waits = RunWaits()
            eager_ms = call_time_ms(run, originals.restore, min(_EAGER_S, budget_s * _EAGER_SHARE))
            waited_share = waits.share()
            originals.restore()
        # One thread: what is run here is not timed, and threads that wait for each other cost most on a busy host.
        with stages("export", "capturing"), one_thread():
            export_until = time.monotonic() + budget_s * _EXPORT_SHARE
            graphs, eager = export_parts(
                model,
                inputs,
                lambda part: _attempt(part, export_until),
                lambda: _restored(originals, run),
                lambda part: fragments_of(part, export_until),
            )
        with stages("operators", "timing operators"):
            each_s = min(_OPERATORS_S, budget_s * _OPERATORS_SHARE) / max(1, len(graphs))
            for _, exported in graphs:
                _time_operators(exported, each_s)
            whole = len(graphs) == 1 and graphs[0][0].path == "" and graphs[0][0].fragment is None
            for _ in range(_MEASURED_AGAIN):
                if not whole or _fit(eager_ms, graphs[0][1]) or time.monotonic() > ends - budget_s * _AGAIN_SHARE:
                    break
                # Another program was in the way of one of them, which can only make it longer.
                eager_ms = min(eager_ms, call_time_ms(run, originals.restore, _EAGER_S / 2))
                originals.restore()
                _time_operators(graphs[0][1], each_s / 2)
            graph_ms = [eager_ms] if whole else _times_of_parts(graphs, originals, run)
        compiled: dict[str, Any] = {"compile_s": None, "compile_ms": None, "kernels_ms": []}
        compiled["compile_error"] = "it was not asked for"
        if compile:
            with stages("compile", "torch.compile"):
                compiled = compiled_times(model, inputs, originals.restore, ends - time.monotonic())
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "shape_groups": groups,
        "notes": notes,
        "graphs": [
            {**exported.described.data, "path": part.path, "calls": part.calls, "eager_ms": ms}
            for (part, exported), ms in zip(graphs, graph_ms, strict=True)
        ],
        "stays_eager": eager,
        "eager_ms": eager_ms,
        "waited_share": waited_share,
        **compiled,
        "cost_s": stages.cost_s,
    }


def _time_operators(exported: Exported, budget_s: float) -> None:
    """Note the time of each operator; of what was timed before, the shorter time."""
    described = exported.described
    times = operator_times_ms(described.graph, described.values, exported.restore, budget_s)
    for node in described.data["nodes"]:
        found, before = times.get(node["name"]), node["eager_ms"]
        node["eager_ms"] = found if before is None or found is None else min(before, found)


def _fit(eager_ms: float, exported: Exported) -> bool:
    """Whether a call of the model takes about as long as its operators one by one (`Captured.contradicts`)."""
    low, high = sorted((_operators_ms(exported), eager_ms))
    return high <= 2 * low or high - low <= 0.5


def _first_call(model: torch.nn.Module, inputs: list[Any]) -> None:
    try:
        result = model(*inputs)
    except BaseException as error:
        raise CaptureError("call", f"{type(error).__name__}: {error}{line_of(error)}") from error
    leaves = pytree.tree_leaves(result)
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kinds = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves))
        what = type(result).__name__ + (f" of {kinds}" if isinstance(result, (list, tuple, dict)) and kinds else "")
        raise CaptureError(
            "call", f"forward returns no tensor ({what}): return tensors, which can be compared with the model's own"
        )


def _restored(originals: Originals, run: Callable[[], Any]) -> Any:
    originals.restore()
    try:
        return run()
    finally:
        originals.restore()


def _attempt(part: Part, until: float) -> Exported:
    """Export a part while there is time for it.

    Raises:
        Refused: there is none, or it cannot be exported.
    """
    if time.monotonic() > until:
        raise Refused("the time for exporting was used up before: a model with fewer operators needs less")
    exported = export_part(part, until)
    nodes = len(exported.described.data["nodes"])
    if nodes > MAX_NODES:
        raise Refused(f"its graph has {nodes} operators, more than {MAX_NODES}")
    return exported


def _times_of_parts(graphs: Graphs, originals: Originals, run: Callable[[], Any]) -> list[float | None]:
    """For each part: the median over forwards of the model of the time of all its calls in one, in milliseconds.

    Of dynamo's graphs it is the time of their operators one by one.
    """
    modules = {part.path: part.module for part, _ in graphs if part.fragment is None}
    forwards = times_of_modules(modules, lambda: _restored(originals, run), 5)[1:] if modules else []

    def time_ms(part: Part, exported: Exported) -> float | None:
        if part.fragment is not None:
            return part.calls * _operators_ms(exported)
        times = sorted(spent[part.path, part.form] for spent in forwards if (part.path, part.form) in spent)
        return times[len(times) // 2] * 1e3 if times else None

    return [time_ms(part, exported) for part, exported in graphs]


def _operators_ms(exported: Exported) -> float:
    """The time of all operators of a graph one by one."""
    return sum(node["eager_ms"] or 0.0 for node in exported.described.data["nodes"])


class _Stages:
    """Tells of each stage when it begins, and notes how long it took."""

    def __init__(self, on_stage: Callable[[str], None]) -> None:
        self.cost_s: list[list[Any]] = []
        self._on_stage = on_stage

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[None]:
        """One stage."""
        self._on_stage(text)
        began = time.monotonic()
        yield
        self.cost_s.append([name, time.monotonic() - began])

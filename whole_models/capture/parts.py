"""Which modules of a model are exported: the model itself, or else the largest modules below it that can be."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .describe import checked_path, plain_path
from .errors import Refused, reason_of
from .load import copied


@dataclass
class Fragment:
    """What is known of a graph that dynamo made of a module, which is a part of its own.

    Attributes:
        fingerprint: by which the same graph is found again.
        given: for each of its inputs the path of the parameter or buffer that it is; empty for another tensor.
        returned: which of its outputs are which of its inputs, by position.
        shared: which other outputs share memory with what (`shared_memory`).
        owner: the module and its call.
        refused: why no kernel can be put into it; empty if one can.
    """

    fingerprint: str
    given: tuple[str, ...]
    returned: tuple[tuple[int, int], ...]
    shared: frozenset[tuple[str, int, int]]
    owner: "Part"
    refused: str = ""


@dataclass
class Part:
    """A module and the arguments of one of its calls.

    Attributes:
        path: where it is in the model.
        module: itself.
        args, kwargs: the arguments, as they were before the call.
        form: equal for calls with equal shapes, strides, dtypes and plain values.
        calls: how many calls of this form one forward of the model makes.
        seconds: roughly how long they took together.
        fragment: None: it is the module as a whole.
    """

    path: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    form: Any = None
    calls: int = 1
    seconds: float = 0.0
    fragment: Fragment | None = None


Graphs = list[tuple[Part, Any]]
_LOOKS = 3  # forwards of which the shortest counts
COVERED = 0.75
"""Where graphs of submodules take this share of a module's time, or of that of dynamo's graphs, they are used."""


def export_parts(
    model: torch.nn.Module,
    inputs: list[Any],
    attempt: Callable[[Part], Any],
    call: Callable[[], Any],
    fragments_of: Callable[[Part], list[Part]],
) -> tuple[Graphs, list[dict[str, str]]]:
    """Export a model, or the largest modules in it that can be, or else the graphs that dynamo makes of a module.

    A module that is called in several forms is not exported, but what it calls may be. Modules that take longest come
    first, in case that there is no time for all.

    Args:
        model: the model.
        inputs: of its `forward`.
        attempt: exports one part, or raises `Refused`.
        call: calls the model once, from the same state each time.
        fragments_of: dynamo's graphs of a part, or raises `Refused`.

    Returns:
        The parts with what `attempt` made of them, and the modules whose own code stays eager, with the reason; both
        in the order of the model's modules.
    """
    graphs: Graphs = []
    eager: dict[str, dict[str, str]] = {}
    stays: dict[str, Part] = {}
    level = {"": [Part("", model, tuple(inputs), form=form_of(inputs, {}))]}
    while level:
        refused = []
        for path, forms in sorted(level.items(), key=lambda item: -sum(part.seconds for part in item[1])):
            try:
                if len(forms) > 1:
                    raise Refused(f"it is called in {len(forms)} forms, of which a graph has one")
                checked_path(path)
                graphs.append((forms[0], attempt(forms[0])))
            except Refused as error:
                refused.append(path)
                shown = re.sub(r"[^A-Za-z0-9_.]", "_", path)
                module_class = type(forms[0].module).__name__
                eager[path] = {"path": shown, "module_class": module_class, "reason": reason_of(error)}
                if len(forms) == 1 and plain_path(path):
                    stays[path] = forms[0]
        level = _calls_below(model, refused, call) if refused else {}
    order = {path: number for number, (path, _) in enumerate(model.named_modules())}
    seconds = _least_seconds(model, {*stays, *(part.path for part, _ in graphs)}, call) if stays else {}
    for path in sorted(stays, key=order.__getitem__):
        if path in eager:  # and not in what dynamo's graphs are used for
            graphs = _with_fragments(graphs, eager, stays[path], seconds, attempt, fragments_of)
    graphs.sort(key=lambda graph: order[graph[0].path])
    return graphs, [eager[path] for path in sorted(eager, key=order.__getitem__)]


def _with_fragments(
    graphs: Graphs,
    eager: dict[str, dict[str, str]],
    part: Part,
    seconds: dict[str, float],
    attempt: Callable[[Part], Any],
    fragments_of: Callable[[Part], list[Part]],
) -> Graphs:
    """The graphs, where it pays with those that dynamo makes of a part in place of those of its submodules.

    `seconds` are those of the part and of the graphs, by path. What `eager` says of the part is changed, and of its
    submodules removed.
    """
    below = [graph for graph in graphs if _is_below(graph[0].path, part.path)]
    covered_s = sum(seconds[path] for path in {each.path for each, _ in below})
    if covered_s >= COVERED * seconds[part.path]:
        return graphs
    found: Graphs = []
    reasons = []
    try:
        for fragment in fragments_of(part):
            try:
                found.append((fragment, attempt(fragment)))
            except Refused as error:
                reasons.append(reason_of(error))
    except Refused as error:
        reasons.append(reason_of(error))
    if not found and reasons:
        eager[part.path]["reason"] += f"; none of dynamo's graphs of it can be captured: {reasons[0]}"
    if not found or covered_s >= COVERED * sum(each.seconds for each, _ in found):
        return graphs
    for path in [path for path in eager if _is_below(path, part.path)]:
        del eager[path]
    told = f"; dynamo makes {len(found) + len(reasons)} graphs of it, of which {len(found)} are captured"
    eager[part.path]["reason"] += told + (f", and others not: {reasons[0]}" if reasons else "")
    return [graph for graph in graphs if not _is_below(graph[0].path, part.path)] + found


def _least_seconds(model: torch.nn.Module, paths: Iterable[str], call: Callable[[], Any]) -> dict[str, float]:
    """The time of all calls of these modules in one forward of the model: the least of several forwards."""
    paths = list(paths)
    forwards = times_of_modules({path: model.get_submodule(path) for path in paths}, call, _LOOKS)
    return {
        path: min(sum(seconds for (of, _), seconds in spent.items() if of == path) for spent in forwards)
        for path in paths
    }


def times_of_modules(
    modules: Mapping[str, torch.nn.Module], call: Callable[[], Any], forwards: int
) -> list[dict[tuple[str, Any], float]]:
    """For each of several forwards the seconds that the calls of these modules took together, by path and form."""
    found: list[dict[tuple[str, Any], float]] = []
    began: list[tuple[tuple[str, Any], float]] = []

    def before(path: str) -> Callable[..., None]:
        def start(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            began.append(((path, form_of(args, kwargs)), time.perf_counter()))

        return start

    def after(*_: Any) -> None:
        now = time.perf_counter()
        key, start = began.pop()
        found[-1][key] = found[-1].get(key, 0.0) + now - start

    handles = []
    for path, module in modules.items():
        handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(after, always_call=True))
    try:
        for _ in range(forwards):
            found.append({})
            call()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _is_below(path: str, parent: str) -> bool:
    return path != parent and (parent == "" or path.startswith(parent + "."))


def form_of(args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """What two calls have in common that can share one graph."""
    leaves, spec = pytree.tree_flatten((list(args), kwargs))
    return (str(spec), tuple(_leaf_form(leaf) for leaf in leaves))


def _leaf_form(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        strides = leaf.stride() if leaf.layout == torch.strided else ()
        return (tuple(leaf.shape), strides, str(leaf.dtype))
    return repr(leaf) if leaf is None or isinstance(leaf, (bool, int, float, str)) else id(leaf)


def _calls_below(model: torch.nn.Module, refused: list[str], call: Callable[[], Any]) -> dict[str, list[Part]]:
    """The outermost calls of modules below these ones in one forward of the model, by path; each form once."""
    found: dict[str, list[Part]] = {}
    inside: list[tuple[Part | None, float]] = []

    def before(path: str) -> Callable[..., None]:
        def record(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            part = None if inside else noted(Part(path, module, args, kwargs, form_of(args, kwargs)))
            inside.append((part, time.perf_counter()))

        return record

    def noted(part: Part) -> Part:
        forms = found.setdefault(part.path, [])
        for same in forms:
            if same.form == part.form:
                same.calls += 1
                return same
        part.args, part.kwargs = copied(part.args), copied(part.kwargs)
        forms.append(part)
        return part

    def after(*_: Any) -> None:
        part, began = inside.pop()
        if part is not None:
            part.seconds += time.perf_counter() - began

    handles = []
    for path, module in model.named_modules():
        below = any(_is_below(path, parent) for parent in refused)
        if path and path not in refused and below:
            handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True, prepend=True))
            handles.append(module.register_forward_hook(after, always_call=True))
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return found

"""Which modules of a model are exported: the model itself, or else the largest modules below it that can be."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .describe import checked_path
from .errors import Refused, reason_of
from .load import copied

MAX_FORMS = 4


@dataclass
class Part:
    """A module and the arguments of one of its calls.

    Attributes:
        path: where it is in the model.
        module: itself.
        args, kwargs: the arguments, as they were before the call.
        form: equal for calls with equal shapes, strides, dtypes and plain values.
        calls: how many calls of this form one forward of the model makes.
    """

    path: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    form: Any = None
    calls: int = 1


Graphs = list[tuple[Part, Any]]


def export_parts(
    model: torch.nn.Module, inputs: list[Any], attempt: Callable[[Part], Any], call: Callable[[], Any]
) -> tuple[Graphs, list[dict[str, str]]]:
    """Export a model, or the largest modules in it that can be.

    A module that is called in several forms is exported in each of them, or not at all.

    Args:
        model: the model.
        inputs: of its `forward`.
        attempt: exports one part, or raises `Refused`.
        call: calls the model once, from the same state each time.

    Returns:
        The parts with what `attempt` made of them, and the modules whose own code stays eager, with the reason.
    """
    graphs: Graphs = []
    eager: list[dict[str, str]] = []
    level = {"": [Part("", model, tuple(inputs), form=form_of(inputs, {}))]}
    while level:
        refused = []
        for path, forms in level.items():
            try:
                if len(forms) > MAX_FORMS:
                    raise Refused(f"it is called in more than {MAX_FORMS} forms")
                checked_path(path)
                graphs += [(part, attempt(part)) for part in forms]
            except Refused as error:
                refused.append(path)
                shown = re.sub(r"[^A-Za-z0-9_.]", "_", path)
                module_class = type(forms[0].module).__name__
                eager.append({"path": shown, "module_class": module_class, "reason": reason_of(error)})
        level = _calls_below(model, refused, call) if refused else {}
    return graphs, eager


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
    inside: list[str] = []

    def before(path: str) -> Callable[..., None]:
        def record(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            inside.append(path)
            if len(inside) > 1:
                return
            form = form_of(args, kwargs)
            forms = found.setdefault(path, [])
            same = [part for part in forms if part.form == form]
            if same:
                same[0].calls += 1
            else:
                forms.append(Part(path, module, copied(args), copied(kwargs), form))

        return record

    def after(*_: Any) -> None:
        inside.pop()

    handles = []
    for path, module in model.named_modules():
        below = any(parent == "" or path.startswith(parent + ".") for parent in refused if parent != path)
        if path and path not in refused and below:
            handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True, prepend=True))
            handles.append(module.register_forward_hook(after, always_call=True))
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return found

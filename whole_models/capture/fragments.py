"""The graphs that dynamo makes of a module that cannot be exported: fragments, between what dynamo cannot follow."""

import itertools
import re
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.fx.traceback
from torch.utils import _pytree as pytree

from . import dynamo
from .compiled import TooLong, at_most
from .describe import first_paths, plain_path, tensor_at
from .errors import Refused, reason_of
from .load import Originals, copied
from .parts import Fragment, Part

OTHER_VALUES = 1 + 2**-10
"""The second call has inputs that differ by this factor, so that numbers which the model reads of tensors do, too."""
_OWN = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set", "training")


@dataclass
class _Seen:
    """A graph of dynamo that a call ran, and what it did.

    Attributes:
        traced: the graph.
        given: for each input the path of the parameter or buffer that it was when the graph was made; empty for
            another tensor. Modules of one class share a graph.
        leaves: copies of the other tensors, as the first call had them.
        returned: which outputs are which inputs, by position: what a call changes in place is returned itself.
        shared: which other outputs lie in the memory of which inputs, or of which outputs before them.
        refused: why no kernel can be put into it; empty if one can.
        calls, seconds: how often it ran, and how long in all; of several calls of the module, the shortest time.
    """

    traced: torch.fx.GraphModule
    given: tuple[str, ...]
    leaves: tuple[torch.Tensor, ...]
    returned: tuple[tuple[int, int], ...] = ()
    shared: frozenset[tuple[str, int, int]] = frozenset()
    refused: str = ""
    calls: int = 0
    seconds: float = 0.0


def fragments_of(part: Part, until: float) -> list[Part]:
    """The graphs that dynamo makes of a call of a part, each as a part of its own, those that take longest first.

    Graphs that compute the same are one. Those of which the form of an input is not fixed are left out.

    Raises:
        Refused: dynamo fails, or the time is over.
    """
    if "forward" in vars(part.module):
        raise Refused("its forward was replaced")
    seen: dict[str, _Seen] = {}
    paths = first_paths(part.module)

    def backend(traced: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        mark = dynamo.fingerprint(traced, inputs)
        given = tuple(paths.get(id(value), "") for value in inputs)
        return (lambda *values: _run(traced, given, values, mark, seen, paths)) if mark else traced.forward

    compiled = dynamo.in_graphs(type(part.module).forward, backend)
    kept = Originals(part.module, [part.args, part.kwargs])
    try:
        with at_most(max(0.001, until - time.monotonic())), torch._dynamo.config.patch(dynamo.settings()):
            for other in (False, True, False, False, False):
                before = {mark: each.seconds for mark, each in seen.items()}
                seen.clear()
                args, kwargs = copied((part.args, part.kwargs)) if not other else _with_other_values(part)
                compiled(part.module, *args, **kwargs)
                kept.restore()
                for mark, each in seen.items():
                    each.seconds = min(each.seconds, before.get(mark, each.seconds))
    except TooLong as error:
        raise Refused("dynamo did not finish in time") from error
    except Exception as error:
        raise Refused(reason_of(error)) from error
    finally:
        kept.restore()
        torch._dynamo.reset()
    return sorted((_as_part(part, mark, each) for mark, each in seen.items()), key=lambda each: -each.seconds)


class Traced(torch.nn.Module):
    """A graph of dynamo as a module with the parameters, buffers and submodules of the one that it was made of."""

    owner: Any
    traced: Any
    given: tuple[str, ...]

    def __init__(self, owner: torch.nn.Module, traced: torch.fx.GraphModule, given: tuple[str, ...]) -> None:
        super().__init__()
        vars(self).update({name: vars(owner)[name] for name in _OWN})
        vars(self).update(owner=owner, traced=traced, given=given)  # not as submodules

    def forward(self, *leaves: torch.Tensor) -> Any:
        """What the graph returns, with the tensors of the module as they are now."""
        left = iter(leaves)
        values = [tensor_at(self, path) if path else next(left) for path in self.given]
        return _Annotated(self.traced).run(*values)

    def module_of(self, node: Any) -> tuple[str, str]:
        """The path and the class of the innermost module whose code called an exported node, as far as is known."""
        path = self._home
        for key in node.meta.get("nn_module_stack") or {}:
            found = re.fullmatch(r"L__self__(\d+)", key)
            path = self._paths.get(int(found[1]), path) if found else path
        return (path, type(self.owner.get_submodule(path)).__name__) if plain_path(path) else ("", "")

    @cached_property
    def _paths(self) -> dict[int, str]:
        return {id(module): path for path, module in self.owner.named_modules()}

    @cached_property
    def _home(self) -> str:
        """The innermost module that all that the graph takes and calls is in."""
        keys = [next(reversed(node.meta["nn_module_stack"])) for node in self.traced.graph.nodes if _has_stack(node)]
        inside = [path for key in keys if str(key).isdigit() and (path := self._paths.get(int(key)))]
        parents = [path.split(".")[:-1] for path in (*inside, *self.given) if path]
        shared = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*parents, strict=False))
        return ".".join(names[0] for names in shared)


class _Annotated(torch.fx.Interpreter):
    """Runs a graph so that an export of the run knows which modules its nodes are from."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        with torch.fx.traceback.preserve_node_meta(), torch.fx.traceback.set_current_meta(n):
            return super().run_node(n)


def _has_stack(node: torch.fx.Node) -> bool:
    return bool(node.meta.get("nn_module_stack"))


def _with_other_values(part: Part) -> Any:
    return pytree.tree_map_only(
        torch.Tensor,
        lambda tensor: tensor * OTHER_VALUES if tensor.is_floating_point() else tensor,
        copied((part.args, part.kwargs)),
    )


def _run(
    traced: torch.fx.GraphModule,
    given: tuple[str, ...],
    values: tuple[Any, ...],
    mark: str,
    seen: dict[str, _Seen],
    paths: dict[int, str],
) -> Any:
    """Run a graph, and note in `seen` what it did."""
    is_first = mark not in seen
    if is_first:
        leaves = tuple(copied(value) for value, path in zip(values, given, strict=True) if not path)
        seen[mark] = _Seen(traced, given, leaves)
    each = seen[mark]
    if [bool(path) for path in each.given] != [id(value) in paths for value in values]:
        each.refused = "it takes a parameter in one call, and in another a tensor that is computed"
    before = [value._version for value in values]
    began = time.perf_counter()
    results = traced.forward(*values)
    each.seconds += time.perf_counter() - began
    each.calls += 1
    if is_first:
        changed = [value for value, version in zip(values, before, strict=True) if value._version != version]
        each.returned = tuple(
            (number, place)
            for number, result in enumerate(results)
            for place, value in enumerate(values)
            if result is value
        )
        whole = {number for number, _ in each.returned}
        parts = [result for number, result in enumerate(results) if number not in whole]
        if any(_share_memory(result, value) for result in parts for value in changed):
            each.refused = "it returns a view of what it changes in place"
        each.shared = shared_memory(results, values, whole)
    return results


def shared_memory(
    results: Sequence[Any], values: Sequence[Any], whole: Container[int]
) -> frozenset[tuple[str, int, int]]:
    """Which results lie in the memory of which inputs, or of which results before them, by position.

    Those in `whole`, which are inputs themselves, are left out.
    """
    found = set()
    for number, result in enumerate(results):
        if number not in whole:
            found |= {("input", number, place) for place, value in enumerate(values) if _share_memory(result, value)}
            before = [(place, other) for place, other in enumerate(results[:number]) if place not in whole]
            found |= {("result", number, place) for place, other in before if _share_memory(result, other)}
    return frozenset(found)


def _share_memory(left: Any, right: Any) -> bool:
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
    return tensors and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr() != 0


def _as_part(part: Part, mark: str, seen: _Seen) -> Part:
    return Part(
        part.path,
        Traced(part.module, seen.traced, seen.given),
        seen.leaves,
        calls=part.calls * seen.calls,
        seconds=seen.seconds,
        fragment=Fragment(mark, seen.given, seen.returned, seen.shared, part, seen.refused),
    )

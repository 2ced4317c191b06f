"""Exports one module, runs what was exported, and sees that it computes what the module does."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .describe import Described, checked_path, describe, describe_call, meaning_of, plain_path, tensor_at
from .errors import Refused, reason_of
from .fragments import Traced, shared_memory
from .load import SEED, Originals, copied
from .modes import other_modes, reads_mode
from .parts import Fragment, Part
from .timing import Recorder

_TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-3, torch.complex128: 1e-7, torch.complex64: 1e-3}
_TOLERANCE_OF_HALVES = 3e-2
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))


@dataclass(frozen=True)
class Exported:
    """A described module that computes what the module does, and what runs it."""

    described: Described
    restore: Callable[[], None]


def export_part(part: Part, until: float) -> Exported:
    """Export a part and run it once. Until then there is time to export it in another mode, too.

    Raises:
        Refused: it cannot be exported, or its graph computes something else.
    """
    kept = Originals(part.module, [part.args, part.kwargs])
    try:
        if part.fragment is not None and part.fragment.refused:
            raise Refused(part.fragment.refused)
        module_of = part.module.module_of if isinstance(part.module, Traced) else None
        program = torch.export.export(part.module, part.args, part.kwargs or None).run_decompositions({})
        described = describe(part.module, program, part.args, part.kwargs, module_of)
        kept.restore()
        _run_and_compare(part, described, kept)
        if part.fragment is None:
            _note_modes(part, described, kept, until)
        else:
            described.data |= _of_fragment(part.fragment)
    except Exception as error:
        kept.restore()
        raise Refused(reason_of(error) + _changed_attribute(part, kept)) from error
    return Exported(described, kept.restore)


def _of_fragment(fragment: Fragment) -> dict[str, Any]:
    """What the description of a fragment has beside that of a module. Dynamo looks at modes itself."""
    owner = fragment.owner
    return {
        "module_class": type(owner.module).__name__,
        "reads_mode": [],
        "fragment": {
            "fingerprint": fragment.fingerprint,
            "given": [checked_path(path) for path in fragment.given],
            "returned": [list(pair) for pair in fragment.returned],
            **describe_call(owner.args, owner.kwargs),
        },
    }


def _note_modes(part: Part, described: Described, kept: Originals, until: float) -> None:
    """Put into the description which submodules look at their mode, and whether another mode computes the same."""
    reads = reads_mode(part.module, lambda: part.module(*part.args, **part.kwargs))
    kept.restore()
    described.data["reads_mode"] = reads if all(map(plain_path, reads)) else None
    described.data["either_mode"] = False
    if not reads or time.monotonic() > until:
        return
    try:
        with other_modes(part.module, reads):
            program = torch.export.export(part.module, part.args, part.kwargs or None).run_decompositions({})
            described.data["either_mode"] = meaning_of(program) == described.meaning
    except Exception:  # a mode that cannot be exported computes something else
        return
    finally:
        kept.restore()


def _changed_attribute(part: Part, kept: Originals) -> str:
    """A plain attribute that a call of a part changes, in words; empty if there is none.

    No graph does that. It may be why a part is refused.
    """
    before = _attributes(part.module)
    try:
        part.module(*part.args, **part.kwargs)
    except Exception:
        return ""
    finally:
        kept.restore()
    after = _attributes(part.module)
    changed = [name for name in after if name not in before or not _is_same(before[name], after[name])]
    return f"; a call changes its attribute {changed[0]}: keep state in buffers of one shape" if changed else ""


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """What the modules hold beside their parameters, buffers and submodules, by name."""
    found: dict[str, Any] = {}
    for path, each in module.named_modules():
        prefix = f"{path}." if path else ""
        own = {name: value for name, value in vars(each).items() if name not in _OF_EVERY_MODULE}
        found |= {
            prefix + name: value.copy() if isinstance(value, (list, dict)) else value for name, value in own.items()
        }
    return found


def _is_same(before: Any, after: Any) -> bool:
    if type(before) is not type(after):
        return False
    plain = isinstance(before, (bool, int, float, str))
    if isinstance(before, dict):
        return list(before) == list(after) and all(_is_same(before[key], after[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(_is_same, before, after))
    return bool(before == after) if plain else before is after


def _run_and_compare(part: Part, described: Described, kept: Originals) -> None:
    """Run the graph, note what is seen, and compare its results with the module's.

    The module is called before and after, since some state is in plain attributes: a module that counts its calls
    returns what its graph does only once.
    """
    expected = _results_of(part, described)
    kept.forget_unchanged()
    kept.restore()
    recorder = Recorder(described.graph)
    torch.manual_seed(SEED)
    try:
        results = list(recorder.run(*described.values))
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"its graph does not run: {reason_of(error)}") from error
    if part.fragment is not None:
        _check_shared(part, part.fragment, results[len(described.mutated) :])
    kept.restore()
    for wanted in (expected, _results_of(part, described)):
        pairs = zip(results, wanted, strict=True)
        if not all(_alike(*pair, values=not described.random) for pair in pairs):
            raise Refused("its graph does not compute what it computes itself in each call")
    kept.restore()
    _note_values(described, recorder)


def _check_shared(part: Part, fragment: Fragment, results: list[Any]) -> None:
    """Refuse a graph whose results share memory in another way than those of dynamo's graph.

    What goes on with them may change one in place, and read the other.
    """
    leaves = iter(part.args)
    values = [tensor_at(part.module, path) if path else next(leaves) for path in fragment.given]
    if shared_memory(results, values, {number for number, _ in fragment.returned}) != fragment.shared:
        raise Refused("two of its results share memory in another way when it is exported")


def _results_of(part: Part, described: Described) -> list[Any]:
    """The values that the module's own code gives the buffers that it changes, and what it returns."""
    torch.manual_seed(SEED)
    leaves = copied(pytree.tree_leaves(part.module(*part.args, **part.kwargs)))
    return [*(copied(tensor_at(part.module, path)) for path in described.mutated), *leaves]


def _alike(result: Any, wanted: Any, *, values: bool) -> bool:
    if not isinstance(wanted, torch.Tensor) or not isinstance(result, torch.Tensor):
        return type(result) is type(wanted) and (result == wanted or result != result)
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    if not values or wanted.numel() == 0:
        return True
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return bool(torch.equal(result, wanted))
    tolerance = _TOLERANCES.get(wanted.dtype, _TOLERANCE_OF_HALVES)
    finite = wanted[wanted.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return bool(torch.allclose(result, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def _note_values(described: Described, recorder: Recorder) -> None:
    """Put what was seen into the description: real strides, and statistics of elements."""
    for node in described.data["nodes"]:
        node["results"] = recorder.results[node["name"]]
    for item in described.data["inputs"]:
        if item["kind"] != "scalar":
            item["tensor"]["values"] = recorder.inputs[item["name"]]

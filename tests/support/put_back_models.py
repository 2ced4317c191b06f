"""Captured graphs, chosen kernels and delivered models for tests, made in this process of the tests' own models."""

import importlib.util
import json
import sys
import time
import types
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whole_models.capture.describe import describe
from whole_models.capture.errors import Refused
from whole_models.capture.export import export_part
from whole_models.capture.fragments import fragments_of
from whole_models.capture.parts import Part
from whole_models.graph import Captured, Graph, read_captured
from whole_models.put_back import Chosen, Delivered
from whole_models.regions import Occurrence, Region
from whole_models.source_text import expression


def loaded(source: str, name: str = "user_model") -> types.ModuleType:
    """The source as a module, which is known by its name as long as no other takes it."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module


def captured(source: str, parts: Sequence[str] = ("",), inputs: Any = None, **modes: Any) -> Captured:
    """The graphs of these modules of a model, which all take the model's inputs if nothing else is given.

    `modes` are `reads_mode` and `either_mode` of each.
    """
    module = loaded(source)
    torch.manual_seed(0)
    model = module.Model(*module.get_init_inputs())
    graphs = []
    for path in parts:
        part = model.get_submodule(path)
        args = tuple(inputs or module.get_inputs())
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls what it has deprecated itself
            program = torch.export.export(part, args).run_decompositions({})
        graphs.append({"path": path, "calls": 1, "eager_ms": None, **modes, **describe(part, program, args, {}).data})
    return _read(graphs)


def captured_in_fragments(source: str, path: str = "", inputs: Any = None) -> Captured:
    """The graphs that dynamo makes of a call of a module, which takes the model's inputs if nothing else is given."""
    module = loaded(source)
    torch.manual_seed(0)
    model = module.Model(*module.get_init_inputs())
    part = Part(path, model.get_submodule(path), tuple(inputs or module.get_inputs()))
    until = time.monotonic() + 100
    found = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in fragments_of(part, until):
            with suppress(Refused):
                found.append((each, export_part(each, until)))
    return _read([{"path": path, "calls": each.calls, "eager_ms": None, **made.described.data} for each, made in found])


def _read(graphs: list[Any]) -> Captured:
    told = {"ok": True, "torch": torch.__version__, "threads": 1, "graphs": graphs, "stays_eager": []}
    told |= {
        "eager_ms": 1.0,
        "compile_ms": None,
        "compile_s": None,
        "compile_error": "",
        "kernels_ms": [],
        "cost_s": [],
    }
    return read_captured(json.dumps(told).encode())


def occurrence(graph: Graph, nodes: Iterable[str]) -> Occurrence:
    """The place of these nodes, with all that they take and give."""
    inside = [node.name for node in graph.nodes if node.name in set(nodes)]
    taken = dict.fromkeys(ref for name in inside for ref in graph.node_of[name].refs if ref not in inside)
    weights = [ref for ref in taken if ref in graph.input_of and graph.input_of[ref].kind not in ("argument", "scalar")]
    outputs = [
        name for name in inside if name in graph.leaving or any(user not in inside for user in graph.users_of[name])
    ]
    return Occurrence(
        nodes=tuple(inside),
        inputs=tuple(
            ref
            for ref in taken
            if ref not in weights and (ref in graph.node_of or graph.input_of[ref].kind == "argument")
        ),
        weights=tuple((f"w{place}", ref) for place, ref in enumerate(weights)),
        outputs=tuple(outputs),
    )


def region(graph: Graph, name: str, *places: Iterable[str]) -> Region:
    """A region in these places, each a set of nodes."""
    found = tuple(occurrence(graph, nodes) for nodes in places)
    return Region(name, "chain", graph.key, found[0].nodes, found, 1.0)


def kernel(graph: Graph, where: Region, *, note: str = "calls.append(1)") -> str:
    """A kernel that computes a region as torch does, and counts its calls in its module's `calls`."""
    place = where.occurrences[0]
    names = {name: f"x{position}" for position, name in enumerate(place.inputs)}
    names |= {name: f"self.{local}" for local, name in place.weights}
    names |= {name: name for name in place.nodes}
    lines = ["import torch", "", "calls = []", "", "", "class ModelNew(torch.nn.Module):", "    def __init__(self):"]
    lines.append("        super().__init__()")
    for local, name in place.weights:
        tensor = graph.input_of[name].tensor
        assert tensor is not None
        value = f"torch.zeros({tensor.shape}, dtype=torch.{tensor.dtype})"
        if graph.input_of[name].kind == "parameter":
            lines.append(f"        self.{local} = torch.nn.Parameter({value})")
        else:
            lines.append(f"        self.register_buffer({local!r}, {value})")
    lines += ["", f"    def forward(self, {', '.join(f'x{position}' for position in range(len(place.inputs)))}):"]
    lines.append(f"        {note}")
    lines += [f"        {name} = {expression(graph.node_of[name], lambda ref: names[ref])}" for name in place.nodes]
    returned = ", ".join(place.outputs)
    return "\n".join([*lines, f"        return {returned}", ""])


def chosen(graph: Graph, *regions: Region) -> list[Chosen]:
    """Each region with a kernel that torch computes."""
    return [Chosen(each, kernel(graph, each)) for each in regions]


def with_name(each: Chosen, name: str) -> Chosen:
    """The same with another name of its region."""
    return replace(each, region=replace(each.region, name=name))


def with_graph(each: Chosen, path: str) -> Chosen:
    """The same in another graph."""
    return replace(each, region=replace(each.region, graph=path))


def with_first_place(each: Chosen, **changed: Any) -> Chosen:
    """The same with another first occurrence."""
    places = each.region.occurrences
    return replace(each, region=replace(each.region, occurrences=(replace(places[0], **changed), *places[1:])))


def delivered_module(folder: Path, delivered: Delivered, name: str = "model") -> types.ModuleType:
    """The delivered folder's `model.py`, imported from its file."""
    for path, text in delivered.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def calls(name: str = "r01_rms_norm", module: str = "model") -> int:
    """How often a kernel was called since its module was loaded."""
    kernels = sys.modules.get(f"{module}_{name}")
    return 0 if kernels is None else len(kernels.calls)


def pair(module: types.ModuleType, source: str, *args: Any) -> tuple[Any, Any]:
    """An optimized model and the original one, with equal weights."""
    user = loaded(source)
    torch.manual_seed(3)
    ours = module.Model(*(args or user.get_init_inputs()))
    after = torch.rand(1)
    torch.manual_seed(3)
    theirs = user.Model(*(args or user.get_init_inputs()))
    assert torch.equal(after, torch.rand(1)), "the constructor draws other random numbers than the original's"
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    return ours, theirs


def same(left: Any, right: Any) -> bool:
    """Whether two results are of one structure and nearly equal."""
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6, equal_nan=True)
    return type(left) is type(right)


@torch.no_grad()
def runs_kernels(ours: Any, theirs: Any, *inputs: Any, name: str = "r01_rms_norm", **named: Any) -> int:
    """Call both models on these inputs, which must agree; how many calls of the kernel ours made."""
    before = calls(name)
    assert same(ours(*inputs, **named), theirs(*inputs, **named))
    return calls(name) - before

"""Puts kernels back into a model: writes the files that are delivered, and the same files as one candidate.

`model.py` holds the model's source, then what is added: each captured graph with kernels in it as straight-line Python,
and the guards in front of it. Where a guard does not hold, the original code answers. The added text knows the
original class by a name of its own; `get_inputs` and a `__main__` part are left out, because a harness takes inputs
from the original file, and `get_init_inputs` stays, because graphs hold what follows from the constructor's arguments.
"""

import ast
import base64
import binascii
import builtins
import heapq
import itertools
import keyword
import math
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tasks import syntax
from tasks.rename import renamed_text
from whole_models import model_runtime
from whole_models.aliases import memories_of
from whole_models.graph import Captured, Fragment, Graph, GraphInput, Node, TensorFacts
from whole_models.regions import Occurrence, Region
from whole_models.source_text import NameOf, argument_text, expression, named, tree_text

CLASS = "Model"
CANDIDATE_CLASS = "ModelNew"
MODEL_FILE = "model.py"
ADDED = "# ==== What follows was added by Kernelwright ===="
_FILE_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)
_LOCAL_NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_KERNEL_TENSOR = re.compile(r"[A-Za-z_][\w.]{0,199}(\[[^\]\n]{1,100}\])?", re.ASCII)
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("__"))


class PutBackError(Exception):
    """Kernels cannot be put into a model. The text is one line."""


@dataclass(frozen=True)
class Chosen:
    """A region, and the kernel that its places run.

    Attributes:
        region: where.
        kernel_source: a candidate for the region's task: it defines `ModelNew`.
        names: the kernel's names of weights that it calls by another than the task's: the task's and the kernel's.
    """

    region: Region
    kernel_source: str
    names: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Variant:
    """A model as it was captured with one list of inputs, and regions of its graphs with a kernel each."""

    captured: Captured
    chosen: Sequence[Chosen]


@dataclass(frozen=True)
class Delivered:
    """The files of the folder by their paths in it."""

    files: Mapping[str, str]


def put_back(source: str, variants: Sequence[Variant]) -> Delivered:
    """Write `model.py`, and `kernels/NAME.py` for each region.

    Args:
        source: the model's source.
        variants: the model for each list of inputs. A call runs the first graph whose inputs are like its own.

    Raises:
        PutBackError: the source has no class `Model`, or the regions do not fit the graphs or each other.
    """
    every = [each for variant in variants for each in variant.chosen]
    for each in every:
        if not _FILE_NAME.fullmatch(each.region.name):
            raise PutBackError(f"{each.region.name[:80]!r} is no name of a file")
    names = [each.region.name for each in every]
    if len(set(names)) < len(names):
        raise PutBackError("two regions have the same name")
    original = _read_original(source)
    graphs = [(number, *found) for number, variant in enumerate(variants) for found in _with_kernels(variant)]
    written = [_GraphText(graph, kernels, place, number) for place, (number, graph, kernels) in enumerate(graphs)]
    files = {MODEL_FILE: _model_text(original, written)}
    files |= {_kernel_file(each.region.name): each.kernel_source for each in every}
    return Delivered(files)


def _with_kernels(variant: Variant) -> list[tuple[Graph, list[Chosen]]]:
    """The graphs of a variant that kernels are for, with these."""
    unknown = {each.region.graph for each in variant.chosen} - {graph.key for graph in variant.captured.graphs}
    if unknown:
        raise PutBackError(f"no graph of {min(unknown)!r} was captured")
    found = []
    for graph in variant.captured.graphs:
        kernels = [each for each in variant.chosen if each.region.graph == graph.key and each.region.occurrences]
        if kernels:
            found.append((graph, kernels))
    return found


def bundle(delivered: Delivered) -> str:
    """The delivered files as the source of one candidate.

    It is `model.py` but for the name of the class, and for the function that reads the kernels' files, which holds
    their text instead.

    Raises:
        PutBackError: `put_back` did not write these files.
    """
    before, mark, added = delivered.files[MODEL_FILE].rpartition(f"\n{ADDED}\n")
    found = re.search(r"^def (\w+)source\(name\):\n", added, re.MULTILINE)
    if not mark or not found:
        raise PutBackError("these files are not as they were written")
    reader = model_runtime.READER.replace("_kw_", found[1])
    own_class = f"\nclass {CLASS}("
    if added.count(reader) != 1 or added.count(own_class) != 1:
        raise PutBackError("these files are not as they were written")
    sources = {
        path.removeprefix("kernels/").removesuffix(".py"): text
        for path, text in delivered.files.items()
        if path != MODEL_FILE
    }
    entries = "\n".join(f"        {name!r}: (\n{_quoted(text, 12)}\n        )," for name, text in sources.items())
    embedded = model_runtime.EMBEDDED_READER.format(sources=entries).replace("_kw_source", f"{found[1]}source", 1)
    added = added.replace(reader, embedded).replace(own_class, f"\nclass {CANDIDATE_CLASS}(")
    return before + mark + added


def _kernel_file(name: str) -> str:
    return f"kernels/{name}.py"


def _quoted(text: str, indent: int) -> str:
    """A text as string literals, a line each."""
    lines = text.splitlines(keepends=True) or [""]
    return "\n".join(" " * indent + ascii(line) for line in lines)


@dataclass(frozen=True)
class _Original:
    """The model's own part of `model.py`.

    Attributes:
        text: its source with the class renamed, without what is left out.
        name: the name that its class has.
        prefix: what names in the added text begin with; no name of the source does.
        bound: the names that the source gives a meaning, None: it may be any.
        has_init_inputs: whether it defines `get_init_inputs`.
    """

    text: str
    name: str
    prefix: str
    bound: frozenset[str] | None
    has_init_inputs: bool

    def takes(self, name: str) -> bool:
        """Whether the source may give this name a meaning of its own."""
        return self.bound is None or name in self.bound


def _read_original(source: str) -> _Original:
    try:
        tree = syntax.parse(source)
        if not any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
            raise PutBackError(f"the source has no class {CLASS} at its top level")
        # One underscore in front: attributes with two are stored under the class's name without it, so none changes.
        words = _words(tree)
        name = next(name for number in itertools.count(1) if (name := _numbered("_" + CLASS, number)) not in words)
        text = renamed_text(_without_inputs(source, tree), {CLASS: name})
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PutBackError("the source is not Python") from error
    if name != "_" + CLASS and any(word.startswith("__") and not word.endswith("__") for word in words):
        raise PutBackError(f"the source has private attributes, and its class cannot be called _{CLASS}")
    bound = _bound_names(tree)
    return _Original(
        text=text.rstrip("\n") + "\n",
        name=name,
        prefix=_free_prefix(source),
        bound=bound,
        has_init_inputs=any(
            (isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs")
            or (isinstance(node, ast.Assign) and any(ast.unparse(each) == "get_init_inputs" for each in node.targets))
            for node in tree.body
        ),
    )


def _free_prefix(source: str) -> str:
    """A prefix of names that nothing in the source begins with."""
    number = 1
    while re.search(rf"(?<!\w){_numbered('_kw', number)}", source):
        number += 1
    return _numbered("_kw", number) + "_"


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{number}"


def _words(tree: ast.Module) -> set[str]:
    """The names and attributes that a source has anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for each in ("id", "name", "attr", "arg", "asname"):
            if isinstance(word := getattr(node, each, None), str):
                found.add(word)
    return found


def _without_inputs(source: str, tree: ast.Module) -> str:
    """The source without `get_inputs` and without what runs only as a script, which may call it.

    Whatever else refers to `get_inputs` keeps it.
    """

    def is_script(node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and not node.orelse

    rest = [node for node in tree.body if not is_script(node)]
    functions = [node for node in rest if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    kept = [node for node in rest if node not in functions]
    if any(isinstance(each, ast.Name) and each.id == "get_inputs" for node in kept for each in ast.walk(node)):
        kept = rest
    gone = [node for node in tree.body if node not in kept]
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for node in reversed(gone):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        del lines[first - 1 : node.end_lineno]
    text = "\n".join(lines)
    wanted = ast.Module(kept, [])
    try:
        if ast.dump(syntax.parse(text)) == ast.dump(wanted):
            return text
    except (SyntaxError, ValueError):
        pass
    return ast.unparse(wanted) + "\n"


def _bound_names(tree: ast.Module) -> frozenset[str] | None:
    """The names that a source binds anywhere but by `import torch`; None: it imports all that a module has."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found |= {*node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    return None
                name = alias.asname or alias.name.partition(".")[0]
                is_torch = isinstance(node, ast.Import) and name == "torch" == alias.name[:5]
                if not is_torch or (alias.asname and alias.name != "torch"):
                    found.add(name)
    return frozenset(found)


def _model_text(original: _Original, graphs: Sequence["_GraphText"]) -> str:
    prefix = original.prefix
    shown = "OriginalModel" if not original.takes("OriginalModel") else ""
    api = {name: f"kernelwright_{name}" if original.takes(name) else name for name in ("apply", "remove")}
    init_inputs = "get_init_inputs" if original.has_init_inputs else "list"
    header = (
        "# Written by Kernelwright: the hot regions of this model run as kernels, which lie in the folder kernels.\n"
        f"# The model's own source follows; its class is called {original.name} here. What was added comes after it.\n"
    )
    names = [
        f"{prefix}ORIGINAL = {original.name}",
        *([f"{shown} = {original.name}"] if shown else []),
        f"{prefix}NAMES = {{{CLASS!r}: {original.name!r}}}",
        f"{prefix}init_inputs = {init_inputs}",
    ]
    fragments = [model_runtime.fragments()] if any(each.graph.fragment for each in graphs) else []
    text = "\n\n".join(
        [
            *(text.replace("_kw_", prefix) for text in (model_runtime.RUNTIME, *fragments)),
            *(graph.function(prefix) + "\n" for graph in graphs),
            f"{prefix}GRAPHS = (\n"
            + "".join(graph.facts(prefix) for graph in graphs)
            + ")\n"
            + "\n".join(names)
            + "\n",
            model_runtime.MODEL.replace("_kw_", prefix).format(name=CLASS, original=original.name),
            model_runtime.API.replace("_kw_", prefix).format(**api),
        ]
    )
    # What the source may have given another meaning is taken from where it comes from, under a name of its own.
    used = {node.id for node in ast.walk(syntax.parse(text)) if isinstance(node, ast.Name)}
    shadowed = sorted(name for name in used & (_BUILTINS | {"torch"}) if original.takes(name))
    imports = model_runtime.IMPORTS.replace("_kw_", prefix) + "\n"
    imports += f"import torch as {prefix}torch\n" if "torch" in shadowed else "import torch\n"
    imports += "".join(f"from builtins import {name} as {prefix}{name}\n" for name in shadowed if name != "torch")
    if shadowed:
        text = renamed_text(text, {name: f"{prefix}{name}" for name in shadowed})
    reader = model_runtime.READER.replace("_kw_", prefix)
    return f"{header}{original.text}\n\n{ADDED}\n\n{imports}\n\n{reader}\n\n{text}"


@dataclass(frozen=True)
class _Call:
    """The call of a kernel in one place."""

    chosen: Chosen
    occurrence: Occurrence
    number: int  # among the places of its region, from 1
    variable: str = ""


class _GraphText:
    """A graph with kernels in it, as a function, and what guards need to know of it."""

    def __init__(self, graph: Graph, chosen: Sequence[Chosen], place: int, variant: int) -> None:
        self.graph, self.place, self.variant = graph, place, variant
        calls = [
            _Call(each, occurrence, number)
            for each in chosen
            for number, occurrence in enumerate(each.region.occurrences, 1)
        ]
        for call in calls:
            _check_occurrence(graph, call.chosen.region.name, call.occurrence)
        # A buffer may be set without being read: it is an input here, and no input of the captured graph.
        set_only = _set_only(graph)
        names = [*graph.input_of, *graph.node_of, *(each.name for each in set_only)]
        variables = _variables([*names, *(f"{call.chosen.region.name}_{call.number}" for call in calls), "result"])
        self.variable = dict(zip(names, variables, strict=False))
        self.calls = [
            _Call(call.chosen, call.occurrence, call.number, variable)
            for call, variable in zip(calls, variables[len(names) :], strict=False)
        ]
        self.result = variables[-1]
        self.order = _ordered(graph, self.calls)
        taken = {name for unit in self.order for name in _taken(graph, unit)} | graph.leaving
        mutated = {mutation.path for mutation in graph.mutations}
        self.weights = [
            each
            for each in graph.inputs
            if each.kind in ("parameter", "buffer", "constant")
            and (each.name in taken or (each.kind == "buffer" and each.path in mutated))
        ] + set_only
        buffers = {each.path: each.name for each in self.weights if each.kind == "buffer"}
        self.mutated = {path: buffers[path] for path in mutated}

    def function(self, prefix: str) -> str:
        """The graph as a function of its leaves, its weights and its kernels."""
        name_of = named(self.variable)
        module = self.graph.path or "the model"
        what = "The forward" if self.graph.fragment is None else "A part of the forward"
        lines = [
            f"def {prefix}graph_{self.place}(leaves, weights, kernels):",
            f'    """{what} of {module}: {len(self.graph.nodes)} operators, of which '
            f'{sum(len(call.occurrence.nodes) for call in self.calls)} run in {len(self.calls)} kernels."""',
        ]
        if self.graph.leaves:
            lines.append(f"    {', '.join(self.variable[each.name] for each in self.graph.leaves)}, = leaves")
        if self.weights:
            lines.append("    (")
            lines += [f"        {self.variable[each.name]},  # {each.path or each.kind}" for each in self.weights]
            lines.append("    ) = weights")
        lines.append(f"    {', '.join(call.variable for call in self.calls)}, = kernels")
        lines += [f"    {line}" for line in self._body(name_of)]
        return "\n".join(lines)

    def _body(self, name_of: NameOf) -> Iterator[str]:
        graph = self.graph
        last = {name: place for place, unit in enumerate(self.order) for name in (*_taken(graph, unit), *_made(unit))}
        module = ""
        for place, unit in enumerate(self.order):
            if isinstance(unit, _Call):
                module = ""
                yield _comment(
                    f"Kernel {unit.chosen.region.name} ({unit.chosen.region.kind}), place {unit.number} of "
                    f"{len(unit.chosen.region.occurrences)}: {_places(graph, unit.occurrence)}"
                )
                outputs = ", ".join(name_of(name) for name in unit.occurrence.outputs)
                inputs = ", ".join(name_of(name) for name in unit.occurrence.inputs)
                yield f"{outputs} = {unit.variable}({inputs})"
            else:
                where = f"{unit.module or 'the model'} ({unit.module_class})"
                if where != module:
                    yield _comment(where)
                module = where
                yield f"{name_of(unit.name)} = {expression(unit, name_of)}"
            gone = [
                name_of(name)
                for name in dict.fromkeys((*_taken(graph, unit), *_made(unit)))
                if last[name] == place and name in graph.node_of and name not in graph.leaving
            ]
            if gone:
                yield f"del {', '.join(gone)}"
        yield from self._end(name_of)

    def _end(self, name_of: NameOf) -> Iterator[str]:
        """The result, and the buffers that the call changes. What lies in a buffer's memory is copied before that."""
        graph = self.graph
        changed = set(self.mutated.values())

        def safe(name: str) -> str:
            text = name_of(name)
            return text if changed.isdisjoint(memories_of(graph, name)) else f"{text}.clone()"

        result = tree_text(graph.result, [argument_text(output, safe) for output in graph.outputs])
        if not graph.mutations:
            yield f"return {result}"
            return
        yield f"{self.result} = {result}"
        moved = [mutation for mutation in graph.mutations if self.mutated[mutation.path] != mutation.value]
        copied = [each.value for each in moved if not changed.isdisjoint(memories_of(graph, each.value))]
        for name in dict.fromkeys(copied):
            yield f"{name_of(name)} = {name_of(name)}.clone()"
        if copied:  # the variables of buffers may stand for copies from here on
            names = {name: f"weights[{place}]" for place, name in enumerate(each.name for each in self.weights)}
        else:
            names = self.variable
        for mutation in moved:
            yield f"{names[self.mutated[mutation.path]]}.copy_({name_of(mutation.value)})"
        yield f"return {self.result}"

    def facts(self, prefix: str) -> str:
        """The call that makes the description of the graph."""
        tree, keywords, given = self.graph.called_with
        leaves = [
            f"({argument_text(each.value, str)},)" if each.tensor is None else _tensor_text(each.tensor)
            for each in given
        ]
        position = {each.name: place for place, each in enumerate(self.weights)}
        kernels = []
        for call in self.calls:
            other = dict(call.chosen.names)
            taken = []
            for local, name in call.occurrence.weights:
                own = other.get(local, local)
                if not _LOCAL_NAME.fullmatch(local) or not _KERNEL_TENSOR.fullmatch(own):
                    raise PutBackError(f"{own[:80]!r} is no name of a weight")
                taken.append((own, position[name], self.graph.input_of[name].kind == "parameter"))
            kernels.append((call.chosen.region.name, tuple(taken)))
        rows = [
            f"{prefix}graph_{self.place}",
            f"path={self.graph.path!r}",
            f"training={{{', '.join(map(repr, self.graph.training))}}}" if self.graph.training else "training=()",
            f"reads_mode={self.graph.reads_mode!r}",
            f"either_mode={self.graph.either_mode!r}",
            f"arguments={tree[1]!r}",
            f"keywords={keywords!r}",
            _listed("leaves", leaves),
            _listed("weights", [_weight_text(each, set(self.mutated.values())) for each in self.weights]),
            _listed("kernels", list(map(repr, kernels))),
            *([f"fragment={self._fragment(self.graph.fragment)!r}"] if self.graph.fragment else []),
        ]
        return f"    {prefix}Graph(\n" + "".join(f"        {row},\n" for row in rows) + "    ),\n"

    def _fragment(self, fragment: Fragment) -> tuple[object, ...]:
        """Which places its graph is in, by what it is found, and where its tensors are in what dynamo gives it."""
        leaves = tuple(place for place, path in enumerate(fragment.given) if not path)
        weights = tuple(-1 if each.kind == "constant" else fragment.given.index(each.path) for each in self.weights)
        return self.variant, fragment.fingerprint, self.graph.calls, leaves, weights, fragment.returned


_Unit = Node | _Call


def _taken(graph: Graph, unit: _Unit) -> tuple[str, ...]:
    """The nodes and inputs that a node, or the call of a kernel, takes."""
    if isinstance(unit, Node):
        return unit.refs
    return (*unit.occurrence.inputs, *(name for _, name in unit.occurrence.weights))


def _made(unit: _Unit) -> tuple[str, ...]:
    return (unit.name,) if isinstance(unit, Node) else unit.occurrence.outputs


def _set_only(graph: Graph) -> list[GraphInput]:
    """An input for each buffer that a call sets without reading it. Its strides are not known."""
    known = {each.path for each in graph.inputs if each.kind == "buffer"}
    found: list[GraphInput] = []
    for mutation in graph.mutations:
        tensor = graph.tensor_of(mutation.value)
        if mutation.path in known:
            continue
        if tensor is None:
            raise PutBackError(f"a call sets {mutation.path} to what is no tensor")
        name = "set_" + mutation.path.replace(".", "_")
        while name in graph.input_of or name in graph.node_of or any(name == each.name for each in found):
            name += "_"
        found.append(GraphInput(name, "buffer", mutation.path, replace(tensor, stride=())))
    return found


def _check_occurrence(graph: Graph, name: str, occurrence: Occurrence) -> None:
    """Refuse a place of a region that a kernel cannot stand for."""
    inside = set(occurrence.nodes)
    taken = {*occurrence.inputs, *(each for _, each in occurrence.weights)}
    if not occurrence.outputs or not inside <= set(graph.node_of) or not set(occurrence.outputs) <= inside:
        raise PutBackError(f"the region {name} has nodes or outputs that are not in its graph")
    if not taken <= {*graph.node_of, *graph.input_of} - inside:
        raise PutBackError(f"the region {name} takes what is not in its graph, or what it computes")
    for each in occurrence.nodes:
        node = graph.node_of[each]
        if not node.pure:
            raise PutBackError(f"the region {name} has {each} in it, which no kernel may compute")
        outside = [ref for ref in node.refs if ref not in inside and ref not in taken]
        if any(ref in graph.node_of or graph.input_of[ref].kind != "scalar" for ref in outside):
            raise PutBackError(f"the region {name} does not say that it takes {outside[0]}")
        leaves = each in graph.leaving or any(user not in inside for user in graph.users_of[each])
        if leaves and each not in occurrence.outputs:
            raise PutBackError(f"the region {name} does not give back {each}, which is used outside of it")


def _ordered(graph: Graph, calls: Sequence[_Call]) -> list[_Unit]:
    """Nodes and calls of kernels in an order in which they can be computed, as near the graph's as possible.

    Nodes that are not pure stay in their order: they may draw random numbers.
    """
    unit_of: dict[str, _Unit] = {node.name: node for node in graph.nodes}
    for call in calls:
        for name in call.occurrence.nodes:
            if isinstance(unit_of[name], _Call):
                raise PutBackError(f"{name} is in two regions")
            unit_of[name] = call
    place = {node.name: position for position, node in enumerate(graph.nodes)}
    units: dict[int, _Unit] = {}
    key: dict[int, int] = {}
    for name, unit in unit_of.items():
        units[id(unit)] = unit
        key[id(unit)] = max(place[name], key.get(id(unit), 0))
    before: dict[int, set[int]] = {
        each: {id(unit_of[name]) for name in _taken(graph, unit) if name in unit_of} for each, unit in units.items()
    }
    impure = [id(unit_of[node.name]) for node in graph.nodes if not node.pure]
    for first, second in itertools.pairwise(impure):
        before[second].add(first)
    after: dict[int, list[int]] = {each: [] for each in units}
    for each, earlier in before.items():
        for other in earlier:
            after[other].append(each)
    waiting = {each: len(earlier) for each, earlier in before.items()}
    ready = [(key[each], each) for each, count in waiting.items() if not count]
    heapq.heapify(ready)
    found: list[_Unit] = []
    while ready:
        _, each = heapq.heappop(ready)
        found.append(units[each])
        for other in after[each]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (key[other], other))
    if len(found) < len(units):
        stuck = sorted(
            {unit.chosen.region.name for unit in units.values() if isinstance(unit, _Call) and unit not in found}
        )
        raise PutBackError(f"regions need each other's results: {', '.join(stuck)}")
    return found


def _variables(names: Iterable[str]) -> list[str]:
    """A variable for each name: the name, with underscores behind it where it has another meaning or is taken."""
    taken = {*keyword.kwlist, *dir(builtins), "torch", "leaves", "weights", "kernels"}
    found = []
    for name in names:
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(name)
    return found


def _places(graph: Graph, occurrence: Occurrence) -> str:
    modules = dict.fromkeys(graph.node_of[name].module or "the model" for name in occurrence.nodes)
    shown = list(modules)[:6]
    return ", ".join(shown) + (f" and {len(modules) - len(shown)} more" if len(modules) > len(shown) else "")


def _comment(text: str) -> str:
    return "# " + "".join(each if each.isprintable() else " " for each in text)[:240]


def _tensor_text(tensor: TensorFacts) -> str:
    stride = tensor.stride if len(tensor.stride) == len(tensor.shape) else None
    return f"(torch.{tensor.dtype}, {tensor.shape!r}, {stride!r})"


def _weight_text(weight: GraphInput, mutated: Collection[str]) -> str:
    assert weight.tensor is not None  # as of every input that is no scalar
    data = "None"
    if weight.kind == "constant" and (weight.base64 or not math.prod(weight.tensor.shape)):
        try:
            packed = base64.b64encode(zlib.compress(base64.b64decode(weight.base64), 9)).decode()
        except (binascii.Error, ValueError) as error:
            raise PutBackError(f"the constant {weight.name} has no bytes that can be read") from error
        pieces = [packed[start : start + 96] for start in range(0, len(packed), 96)] or [""]
        data = "(\n" + "".join(f"                {piece!r}\n" for piece in pieces) + "            )"
    kind = "state" if weight.name in mutated else weight.kind
    return f"({kind!r}, {weight.path!r}, {_tensor_text(weight.tensor)}, {data})"


def _listed(name: str, rows: Sequence[str]) -> str:
    return f"{name}=(\n" + "".join(f"            {row},\n" for row in rows) + "        )" if rows else f"{name}=()"

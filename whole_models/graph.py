"""The graph of a model as the capture program describes it: operators, shapes, weights by name. It is checked here.

The capture program (`whole_models/capture/`) runs in a sandbox beside the model's own code, so all that it says is a
claim. Names that become part of generated source are held to patterns here.
"""

import json
import keyword
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")
MAX_NODES = 20_000
MAX_ITEMS = 65_536  # of a list among a node's arguments
MAX_DEPTH = 12
MAX_CALLS = 1_000_000
MAX_SIZE = 1 << 62  # of a dimension, of a step, and of the elements of a tensor
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_]\w{0,199}(\.[A-Za-z0-9_]\w{0,199}){0,60}", re.ASCII)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_OPERATOR = re.compile(r"aten\.[A-Za-z_]\w{0,99}\.[A-Za-z_]\w{0,99}", re.ASCII)
DTYPES = frozenset(
    {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"}
    | {"complex64", "complex128", "uint16", "uint32", "uint64"}
)
GET_ITEM = "getitem"
"""The operator of a node that takes one result of a node with several: `args` are that node and an index."""
_TORCH_NAMES = {
    "dtype": DTYPES,
    "memory_format": frozenset({"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}),
    "layout": frozenset({"strided"}),
    "device": frozenset({"cpu"}),
}


class CaptureFailed(Exception):
    """A model could not be captured. The text is one line; `stage` is load, state, inputs, call or sandbox."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage, self.message = stage, message

    def to_json(self) -> bytes:
        """As the capture program says it, for `read_captured` to raise again."""
        return json.dumps({"ok": False, "stage": self.stage, "error": self.message}).encode()


@dataclass(frozen=True)
class Values:
    """What was seen of a tensor's elements. The mean, the spread and the shares are of a sample where there are many.

    Attributes:
        low, high, mean, std: of the finite elements.
        zeros: the share of elements that are zero.
        finite: the share of elements that are finite.
    """

    low: float
    high: float
    mean: float
    std: float
    zeros: float
    finite: float


@dataclass(frozen=True)
class TensorFacts:
    """Shape, strides in elements, dtype (`float32`) and, where it was seen, what the elements were like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    values: Values | None = None

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Ref:
    """The result of a node, or an input of the graph, as an argument of another node."""

    name: str


@dataclass(frozen=True)
class TorchName:
    """A constant of torch as an argument: `kind` is dtype, memory_format, layout or device."""

    kind: str
    name: str


Argument = Ref | TorchName | bool | int | float | str | None | tuple["Argument", ...]
"""An argument of a node. Lists are tuples; infinite and undefined numbers are floats."""


@dataclass(frozen=True)
class GraphInput:
    """An input of a graph.

    Attributes:
        name: its name among the nodes.
        kind: `argument` (a tensor that `forward` is given), `scalar` (a number or word that it is given), `parameter`,
            `buffer` or `constant` (a tensor that the model's code makes).
        path: of a parameter, buffer or constant: its name in the captured module.
        tensor: None for a scalar.
        value: of a scalar.
        base64: of a constant: the bytes of its elements in order.
    """

    name: str
    kind: str
    path: str = ""
    tensor: TensorFacts | None = None
    value: bool | int | float | str | None = None
    base64: str = ""


@dataclass(frozen=True)
class Node:
    """One call of an operator.

    Attributes:
        name: unique in the graph; an identifier.
        operator: `aten.NAME.OVERLOAD`, or `getitem`.
        args: positional arguments.
        kwargs: arguments by name.
        results: what it returns; one for an operator that returns a tensor, several for one that returns a tuple.
        several: whether it returns a tuple.
        module: the path of the submodule whose code called it; empty for the captured module itself.
        module_class: that submodule's class.
        pure: whether it may be computed by a kernel: the same result for the same arguments, and nothing else changed.
        eager_ms: the median time of the call under eager; None if it was not measured.
    """

    name: str
    operator: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[TensorFacts, ...]
    several: bool
    module: str
    module_class: str
    pure: bool
    eager_ms: float | None = None

    @cached_property
    def refs(self) -> tuple[str, ...]:
        """The names of the nodes and inputs that it takes, in order, each once."""
        found: dict[str, None] = {}
        for argument in (*self.args, *(value for _, value in self.kwargs)):
            _collect(argument, found)
        return tuple(found)


@dataclass(frozen=True)
class Mutation:
    """A buffer of the captured module that a call changes, and the node or input that it equals afterwards."""

    path: str
    value: str


@dataclass(frozen=True)
class Fragment:
    """What is known beside the graph itself of one that dynamo made of a module: it stands for a part of a call.

    Its own arguments are tensors that are no weights of the module, in a tuple.

    Attributes:
        number: among the graphs of the module, from 1.
        fingerprint: by which the graph is found again where dynamo makes it anew.
        given: for each input of dynamo's graph the path of the parameter or buffer that it is; empty for an argument.
        returned: which outputs are which inputs of dynamo's graph, by position.
        arguments, keywords: those of the module's call, as a graph of it whole would have them.
        leaves: the leaves of these, of kind `argument` and `scalar`.
    """

    number: int
    fingerprint: str
    given: tuple[str, ...]
    returned: tuple[tuple[int, int], ...]
    arguments: Any
    keywords: tuple[str, ...]
    leaves: tuple[GraphInput, ...]


@dataclass(frozen=True)
class Graph:
    """One module that was exported whole, with static shapes, in functional form; or a part of its call.

    Attributes:
        path: the module in the model; empty for the model itself.
        module_class: the module's class.
        training: the modes of its submodules: the paths, relative to it, of those in training mode.
        reads_mode: the paths of those that look at their mode; None: this is not known, so it may be any.
        either_mode: whether the same is computed if all of these are in the other mode.
        calls: how often the model calls it in one forward.
        arguments: the tree of the arguments of `forward` (`["leaf"]`, `["tuple"|"list", [trees]]`,
            `["dict", [keys], [trees]]`); leaves are the inputs of kind `argument` and `scalar`, in order.
        keywords: names of the last arguments, which were given by name.
        result: the tree of what it returns; its leaves are `outputs`.
        inputs: in order.
        nodes: in an order in which they can be computed.
        outputs: each a node or input, or a constant.
        mutations: the buffers that a call changes.
        eager_ms: the median time of its call under eager; of all its calls in one forward of the model together.
        fragment: None: the graph is of the whole module.
    """

    path: str
    module_class: str
    training: tuple[str, ...]
    calls: int
    arguments: Any
    keywords: tuple[str, ...]
    result: Any
    inputs: tuple[GraphInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]
    mutations: tuple[Mutation, ...]
    eager_ms: float | None
    reads_mode: tuple[str, ...] | None = None
    either_mode: bool = False
    fragment: Fragment | None = None

    @property
    def key(self) -> str:
        """A name that no other graph of the captured model has; empty for that of the whole model."""
        return self.path if self.fragment is None else f"{self.path}#{self.fragment.number}"

    @property
    def called_with(self) -> tuple[Any, tuple[str, ...], tuple[GraphInput, ...]]:
        """The tree of the arguments of the module's call, the names of the last ones, and their leaves."""
        of = self if self.fragment is None else self.fragment
        return of.arguments, of.keywords, of.leaves

    @cached_property
    def leaves(self) -> tuple[GraphInput, ...]:
        """The leaves of its own arguments, in order."""
        return tuple(each for each in self.inputs if each.kind in ("argument", "scalar"))

    @cached_property
    def node_of(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def input_of(self) -> Mapping[str, GraphInput]:
        """The inputs by name."""
        return {item.name: item for item in self.inputs}

    @cached_property
    def users_of(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the nodes that take a node or input, by its name, in order."""
        found: dict[str, list[str]] = {name: [] for name in (*self.input_of, *self.node_of)}
        for node in self.nodes:
            for ref in node.refs:
                found[ref].append(node.name)
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def leaving(self) -> frozenset[str]:
        """The names of nodes and inputs that are outputs, or that a buffer equals afterwards."""
        found: dict[str, None] = {}
        for output in self.outputs:
            _collect(output, found)
        return frozenset(found) | {mutation.value for mutation in self.mutations}

    def tensor_of(self, name: str) -> TensorFacts | None:
        """What is known of the tensor that this node or input is; None: it is a scalar, or a tuple of tensors."""
        if name in self.input_of:
            return self.input_of[name].tensor
        node = self.node_of[name]
        return None if node.several else node.results[0]


@dataclass(frozen=True)
class EagerModule:
    """A module whose own code could not be exported, and why; what it calls may have been."""

    path: str
    module_class: str
    reason: str


CONTRADICTS, CONTRADICTS_MS = 2.0, 0.5
"""Times of the same work that differ by this factor and by so much cannot both be right."""

BUSY_SHARE = 0.15
"""Threads that wait so much of their time share the processor with other programs."""


@dataclass(frozen=True)
class Captured:
    """A model as it was captured and timed.

    Attributes:
        torch: the version of torch.
        threads: how many threads it used.
        graphs: one, of the whole model, or those of the largest parts that could be exported.
        stays_eager: modules whose own code stays as it is.
        eager_ms: the median time of a call of the model under eager.
        compile_ms: the same under torch.compile; None if it was not measured.
        compile_s: how long torch.compile took before the first result.
        compile_error: why there is no `compile_ms`.
        kernels_ms: under torch.compile: the time of a call in each operator or kernel, by its name, longest first.
        cost_s: where the capture's own time went, by stage.
        waited_share: how much of the time in which threads wanted to run they waited, while eager was timed.
        shape_groups: how many lists of inputs the model's `get_input_groups()` returns.
        notes: what else there is to know of the capture, in words.
    """

    torch: str
    threads: int
    graphs: tuple[Graph, ...]
    stays_eager: tuple[EagerModule, ...]
    eager_ms: float
    compile_ms: float | None
    compile_s: float | None
    compile_error: str
    kernels_ms: tuple[tuple[str, float], ...]
    cost_s: tuple[tuple[str, float], ...]
    waited_share: float = 0.0
    shape_groups: int = 0
    notes: tuple[str, ...] = ()

    @property
    def contradicts(self) -> bool:
        """Whether the model and its operators were seen to take times that do not fit each other.

        Where it was exported whole, its operators one by one do the same work as its call.
        """
        if len(self.graphs) != 1 or self.graphs[0].key or any(node.eager_ms is None for node in self.graphs[0].nodes):
            return False
        alone_ms = sum(node.eager_ms or 0.0 for node in self.graphs[0].nodes)
        low, high = sorted((alone_ms, self.eager_ms))
        return high > CONTRADICTS * low and high - low > CONTRADICTS_MS

    @property
    def is_noisy(self) -> bool:
        """Whether other programs were in the way, so that times and the order of regions are not to be relied on."""
        return self.waited_share > BUSY_SHARE or self.contradicts


def read_captured(stdout: bytes) -> Captured:
    """Read what the capture program wrote.

    Raises:
        CaptureFailed: it reports a failure, or has another form.
    """
    try:
        data = json.loads(stdout)
        if not data["ok"]:
            raise CaptureFailed(_word(data["stage"]), _line(data["error"], 2000))
        return Captured(
            torch=_word(data["torch"]),
            threads=max(1, min(int(data["threads"]), 1024)),
            graphs=_graphs(data["graphs"]),
            stays_eager=tuple(
                EagerModule(_path(item["path"]), _word(item["module_class"]), _line(item["reason"], 600))
                for item in _items(data["stays_eager"])
            ),
            eager_ms=_duration(data["eager_ms"]),
            compile_ms=_optional(data["compile_ms"], _duration),
            compile_s=_optional(data["compile_s"], _duration),
            compile_error=_line(data["compile_error"], 600),
            kernels_ms=tuple((_line(name, 300), _duration(ms)) for name, ms in _items(data["kernels_ms"])),
            cost_s=tuple((_word(name), _duration(s)) for name, s in _items(data["cost_s"])),
            waited_share=min(1.0, _duration(data.get("waited_share", 0.0))),
            shape_groups=max(0, min(int(data.get("shape_groups", 0)), MAX_CALLS)),
            notes=tuple(_line(note, 600) for note in _items(data.get("notes", []))),
        )
    except CaptureFailed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise CaptureFailed("sandbox", f"unreadable result: {type(error).__name__}: {str(error)[:200]}") from error


def _graphs(items: Any) -> tuple[Graph, ...]:
    """The graphs; fragments of one module are numbered in their order."""
    found: list[Graph] = []
    for item in _items(items):
        graph = _graph(item)
        if graph.fragment is not None:
            number = 1 + sum(each.path == graph.path for each in found)
            graph = replace(graph, fragment=replace(graph.fragment, number=number))
        if any(graph.key == each.key for each in found):
            raise ValueError("two graphs of one module")
        found.append(graph)
    return tuple(found)


def _graph(item: Any) -> Graph:
    path, nodes = _path(item["path"]), _items(item["nodes"])
    if len(nodes) > MAX_NODES:
        raise CaptureFailed("call", f"the graph of {path or 'the model'} has more than {MAX_NODES} operators")
    graph = Graph(
        path=path,
        module_class=_word(item["module_class"]),
        training=tuple(_path(path) for path in _items(item["training"])),
        calls=max(1, min(int(item["calls"]), MAX_CALLS)),
        arguments=_tree(item["arguments"]),
        keywords=tuple(_matching(_IDENTIFIER, name) for name in _items(item["keywords"])),
        result=_tree(item["result"]),
        inputs=tuple(_input(each) for each in _items(item["inputs"])),
        nodes=tuple(_node(each) for each in nodes),
        outputs=tuple(_argument(each) for each in _items(item["outputs"])),
        mutations=tuple(
            Mutation(_path(each["path"]), _matching(_IDENTIFIER, each["value"])) for each in _items(item["mutations"])
        ),
        eager_ms=_optional(item["eager_ms"], _duration),
        reads_mode=_optional(item.get("reads_mode"), lambda paths: tuple(_path(path) for path in _items(paths))),
        either_mode=item.get("either_mode") is True,
        fragment=_optional(item.get("fragment"), _fragment),
    )
    _check_order(graph)
    if graph.fragment is not None:
        _check_fragment(graph, graph.fragment)
    return graph


def _fragment(item: Any) -> Fragment:
    return Fragment(
        number=0,
        fingerprint=_matching(_FINGERPRINT, item["fingerprint"]),
        given=tuple(_path(path) for path in _items(item["given"])),
        returned=tuple((int(output), int(place)) for output, place in _items(item["returned"])),
        arguments=_tree(item["arguments"]),
        keywords=tuple(_matching(_IDENTIFIER, name) for name in _items(item["keywords"])),
        leaves=tuple(_input(each) for each in _items(item["leaves"])),
    )


def _check_fragment(graph: Graph, fragment: Fragment) -> None:
    """Refuse a fragment that does not fit its graph."""
    given = [path for path in fragment.given if path]
    held = {each.path for each in graph.inputs if each.kind in ("parameter", "buffer")}
    scalars = any(each.kind == "scalar" for each in graph.leaves)
    if scalars or len(graph.leaves) != len(fragment.given) - len(given):
        raise ValueError("a fragment with other arguments than its graph")
    if not held | {each.path for each in graph.mutations} <= set(given):
        raise ValueError("a fragment that takes weights which it is not given")
    if any(
        each.kind == "constant" and each.tensor and each.tensor.elements and not each.base64 for each in graph.inputs
    ):
        raise ValueError("a fragment with a constant that has no elements")
    if graph.result[0] not in ("tuple", "list") or any(child != ["leaf"] for child in graph.result[1]):
        raise ValueError("a fragment that returns no tuple of tensors")
    if any(
        not (0 <= output < len(graph.outputs) and 0 <= at < len(fragment.given)) for output, at in fragment.returned
    ):
        raise ValueError("a fragment that returns what it does not have")
    _check_arguments(fragment.arguments, fragment.keywords, len(fragment.leaves))
    if any(each.kind not in ("argument", "scalar") for each in fragment.leaves):
        raise ValueError("an argument of another kind")


def _check_order(graph: Graph) -> None:
    """Refuse a graph whose names are not unique, or in which something is taken before it is computed."""
    known: set[str] = set()
    for item in graph.inputs:
        if item.name in known:
            raise ValueError(f"the name {item.name} twice")
        known.add(item.name)
    for node in graph.nodes:
        unknown = [ref for ref in node.refs if ref not in known]
        if unknown or node.name in known:
            raise ValueError(f"node {node.name} has a name that is taken, or takes what is not computed before it")
        known.add(node.name)
    if not graph.leaving <= known:
        raise ValueError("an output that nothing computes")
    if _leaves(graph.result) != len(graph.outputs):
        raise ValueError("a tree with another number of leaves than there are outputs")
    _check_arguments(graph.arguments, graph.keywords, len(graph.leaves))


def _check_arguments(tree: Any, keywords: tuple[str, ...], leaves: int) -> None:
    if _leaves(tree) != leaves:
        raise ValueError("a tree with another number of leaves than there are arguments")
    if tree[0] != "tuple" or len(tree[1]) < len(keywords):
        raise ValueError("arguments that are no tuple")


def _input(item: Any) -> GraphInput:
    kind = item["kind"]
    if kind not in ("argument", "scalar", "parameter", "buffer", "constant"):
        raise ValueError("an input of an unknown kind")
    value = item.get("value")
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise ValueError("a scalar that is no scalar")
    if kind in ("parameter", "buffer") and not item["path"]:
        raise ValueError("a weight without a name")
    return GraphInput(
        name=_matching(_IDENTIFIER, item["name"]),
        kind=kind,
        path=_path(item.get("path", "")),
        tensor=None if kind == "scalar" else _tensor(item["tensor"]),
        value=value,
        base64="".join(ch for ch in str(item.get("base64", "")) if (ch.isascii() and ch.isalnum()) or ch in "+/="),
    )


def _node(item: Any) -> Node:
    operator = item["operator"]
    if operator != GET_ITEM:
        _matching(_OPERATOR, operator)
    if any(map(keyword.iskeyword, (*operator.split("."), *item["kwargs"]))):
        raise ValueError("an operator, or the name of an argument, that is a word of Python")
    if not item["several"] and len(item["results"]) != 1:
        raise ValueError("an operator that returns no tensor")
    args = tuple(_argument(each) for each in _items(item["args"]))
    if operator == GET_ITEM and (len(args) != 2 or not isinstance(args[0], Ref) or not isinstance(args[1], int)):
        raise ValueError("an item of nothing")
    return Node(
        name=_matching(_IDENTIFIER, item["name"]),
        operator=operator,
        args=args,
        kwargs=tuple((_matching(_IDENTIFIER, name), _argument(value)) for name, value in item["kwargs"].items()),
        results=tuple(_tensor(each) for each in _items(item["results"])),
        several=bool(item["several"]),
        module=_path(item["module"]),
        module_class=_word(item["module_class"]),
        pure=bool(item["pure"]),
        eager_ms=_optional(item["eager_ms"], _duration),
    )


def _argument(value: Any, depth: int = 0) -> Argument:
    """An argument: plain values, lists, and objects with one key: node, float, dtype, memory_format, layout, device."""
    if depth > MAX_DEPTH:
        raise ValueError("arguments nested too deeply")
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, list):
        return tuple(_argument(each, depth + 1) for each in _items(value))
    ((kind, name),) = value.items()
    if kind == "node":
        return Ref(_matching(_IDENTIFIER, name))
    if kind == "float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[name]
    if name not in _TORCH_NAMES[kind]:
        raise ValueError(f"an unknown {kind}")
    return TorchName(kind, name)


def _tensor(item: Any) -> TensorFacts:
    if item["dtype"] not in DTYPES:
        raise ValueError("an unknown dtype")
    shape = tuple(int(size) for size in _items(item["shape"]))
    stride = tuple(int(step) for step in _items(item["stride"]))
    if len(shape) != len(stride) or any(size < 0 for size in shape):
        raise ValueError("a tensor without a shape")
    if any(abs(size) > MAX_SIZE for size in (*shape, *stride, math.prod(shape))):
        raise ValueError("a tensor that no memory holds")
    return TensorFacts(shape, stride, item["dtype"], _optional(item.get("values"), _values))


def _values(item: Any) -> Values:
    found = {name: float(item[name]) for name in ("low", "high", "mean", "std", "zeros", "finite")}
    if not all(math.isfinite(value) for value in found.values()):
        raise ValueError("statistics that are not finite")
    return Values(**found)


def _tree(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("arguments nested too deeply")
    kind = value[0]
    if kind == "leaf":
        return ["leaf"]
    if kind in ("tuple", "list"):
        return [kind, [_tree(child, depth + 1) for child in _items(value[1])]]
    if kind == "dict":
        keys = [key if isinstance(key, int) else str(key)[:200] for key in _items(value[1])]
        children = [_tree(child, depth + 1) for child in _items(value[2])]
        if len(keys) != len(children) or len(set(keys)) != len(keys):
            raise ValueError("a dict whose keys do not fit its values")
        return ["dict", keys, children]
    raise ValueError(f"unknown container {kind!r}"[:80])


def _leaves(tree: Any) -> int:
    return 1 if tree[0] == "leaf" else sum(map(_leaves, tree[-1]))


def _collect(argument: Argument, found: dict[str, None]) -> None:
    if isinstance(argument, Ref):
        found[argument.name] = None
    elif isinstance(argument, tuple):
        for each in argument:
            _collect(each, found)


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise ValueError("expected a list of bounded length")
    return value


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{str(value)[:80]!r} is not a name")
    return value


def _path(value: Any) -> str:
    return "" if value == "" else _matching(_PATH, value)


def _word(value: Any) -> str:
    return _line(value, 200)


def _line(value: Any, most: int) -> str:
    return "".join(character if character.isprintable() else " " for character in str(value)[:most])


def _duration(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e12:
        raise ValueError("a duration that is none")
    return number


def _optional(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)

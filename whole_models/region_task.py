"""The task file of a region: an op in PyTorch that computes what the region computes, on inputs like those recorded.

Weights become parameters and buffers under the region's local names. Their values, and those of the inputs, are drawn
at random from distributions that match the statistics of what was recorded. Constants of the model keep their values.
"""

import base64
import binascii
import keyword
import re
import statistics
import struct
from collections.abc import Sequence
from dataclasses import replace

from whole_models.amdahl import BYTES
from whole_models.graph import Captured, Graph, GraphInput, TensorFacts, Values
from whole_models.operator_classes import FREE, INDEXING, class_of, short_name
from whole_models.regions import Occurrence, Region, counted_ms
from whole_models.source_text import argument_text, statements

LITERAL_ELEMENTS = 64
"""Constants with more elements are written as base64."""
SHOWN_INPUTS = 6
"""The docstring says of so many inputs where they come from."""
SHOWN_SHARE = 2.0
"""Percent of a region's time from which the docstring names an operator."""
EMBEDDED_BYTES = 48 * 1024
"""Constants with more bytes are drawn at random, as buffers are."""
_UNIFORM_SPAN = 4.0  # standard deviations: all of a large sample within fewer come from no normal distribution
_CENTRED = 0.1  # a mean at most this share of the range off its middle is a uniform distribution's
_SPARSE = 0.02  # the share of zeros that a generator reproduces
_ROUNDING = 1e-6  # a spread at most this share of the mean is what rounding leaves of none
_HUGE = 1e30
_SQUARED = 1e120
_FORMATS = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "float32": "f", "float64": "d"}
_HELD = ("parameter", "buffer", "constant")
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_CATEGORIES = {"normalization": "normalization", "attention": "attention", "indexing": "index"}


def region_task(captured: Captured, region: Region, *, model_name: str, equal: Sequence[Region] = ()) -> str:
    """The source of an ordinary task for a region, in the KernelBench form.

    `Model()` has the region's weights under their local names. `forward` takes the region's inputs in order and returns
    its output, or a tuple of them. `equal` are equal regions of other graphs, which the task is for as well.
    """
    graph = next(graph for graph in captured.graphs if graph.key == region.graph)
    occurrence = region.occurrences[0]
    inputs = [f"x{number}" for number in range(len(occurrence.inputs))]
    weights = {name: local for local, name in occurrence.weights}
    variables = _variables(graph, occurrence.nodes, taken={*inputs, "self", "torch", "nn", "float"})
    names = {
        **{name: argument_text(graph.input_of[name].value, str) for name in graph.input_of if name not in weights},
        **{name: f"self.{local}" for name, local in weights.items()},
        **dict(zip(occurrence.inputs, inputs, strict=True)),
        **variables,
    }
    body = statements(graph, occurrence.nodes, names.__getitem__, kept=frozenset(occurrence.outputs))
    made = [
        _weight_line(local, graph.input_of[name], _seen(graph, [each.weights[n][1] for each in region.occurrences]))
        for n, (local, name) in enumerate(occurrence.weights)
    ]
    generators = [
        _input_text(graph, occurrence, n, _seen(graph, [each.inputs[n] for each in region.occurrences]))
        for n in range(len(occurrence.inputs))
    ]
    results = [variables[name] for name in occurrence.outputs]
    constructor = ["    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in made), ""]
    imports = ["import base64", ""] if any("base64." in line for line in made) else []
    domain = _domain(graph, occurrence)
    lines = [
        *_head(captured, graph, region, model_name, equal),
        *imports,
        "import torch",
        "import torch.nn as nn",
        "",
        *([f"DOMAIN = {domain}", ""] if domain else []),
        "",
        "class Model(nn.Module):",
        *(constructor if made else []),
        f"    def forward(self, {', '.join(inputs)}):",
        *(f"        {line}" for line in body),
        f"        return {', '.join(results)}",
        "",
        "",
        "def get_inputs():",
        "    return [",
        *(f"        {text}," for text in generators),
        "    ]",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def _head(captured: Captured, graph: Graph, region: Region, model_name: str, equal: Sequence[Region]) -> list[str]:
    total = counted_ms(captured)
    ms = sum(each.eager_ms for each in (region, *equal))
    share = f", {100 * ms / total:.1f} % of its time under eager" if total else ""
    calls = {each.key: each.calls for each in captured.graphs}
    count = sum(len(each.occurrences) * calls[each.graph] for each in (region, *equal))
    times = "once" if count == 1 else f"{count} times"
    modules = dict.fromkeys(
        f"{_plain(node.module) or 'the model'} ({_plain(node.module_class.rpartition('.')[2])})"
        if node.module_class
        else "the model"
        for node in map(graph.node_of.__getitem__, region.nodes)
    )
    shown = list(modules)[:6] + (["others"] if len(modules) > 6 else [])
    first = "The first is" if len(region.occurrences) > 1 or equal else "It is"
    return [
        f'"""{_plain(region.name)} of {_plain(model_name)}: {region.kind}, {times} in a call{share}.',
        "",
        f"{first} in {', '.join(shown)}.",
        *_origins(graph, region),
        *_work(graph, region),
        "",
        f"Category: {_category(graph, region)}",
        f"Dtype: {_dtype(graph, region.occurrences[0])}",
        '"""',
        "",
    ]


def _origins(graph: Graph, region: Region) -> list[str]:
    """A line that says what gives each input in the first place: a module's operator, a buffer, or the caller."""
    taken = region.occurrences[0].inputs
    shown = [f"x{number} from {_origin(graph, name)}" for number, name in enumerate(taken[:SHOWN_INPUTS])]
    shown += ["others"] if len(taken) > SHOWN_INPUTS else []
    return [f"{'There it' if len(region.occurrences) > 1 else 'It'} takes {', '.join(shown)}."]


def _origin(graph: Graph, name: str) -> str:
    while (node := graph.node_of.get(name)) is not None and class_of(node) == FREE and node.refs:
        name = node.refs[0]
    if node is None:
        item = graph.input_of[name]
        return _plain(item.path) if item.kind in _HELD else f"the argument {_plain(name)}"
    word = node.module_class.rpartition(".")[2]
    path = ".".join(part for part in (graph.path, node.module) if part)
    owner = (_plain(path) or "the model itself") + (f" ({_plain(word)})" if word else "")
    return f"{_plain(short_name(node.operator))} in {owner}"


def _work(graph: Graph, region: Region) -> list[str]:
    """A line with the share of each operator in the region's time; none if nothing was timed."""
    spent = dict[str, float]()
    for name in (each for place in region.occurrences for each in place.nodes):
        node = graph.node_of[name]
        word = short_name(node.operator)
        spent[word] = spent.get(word, 0.0) + (node.eager_ms or 0.0)
    total = sum(spent.values())
    if not total:
        return []
    shares = [(100 * ms / total, word) for word, ms in sorted(spent.items(), key=lambda each: -each[1])]
    shown = [f"{_plain(word)} {share:.0f} %" for share, word in shares if share >= SHOWN_SHARE]
    rest = [] if len(shown) == len(shares) else ["others the rest"]
    return [f"Its operators one by one under eager: {', '.join(shown + rest)}."]


def _plain(text: str) -> str:
    """Text for a docstring: what could end it, escape in it, or be read as a header is replaced."""
    return re.sub(r"[^\w .,-]", "_", text, flags=re.ASCII)[:200]


def _category(graph: Graph, region: Region) -> str:
    """The category of `tasks.metadata` that fits a region best."""
    operators = {short_name(graph.node_of[name].operator) for name in region.nodes}
    if region.kind in _CATEGORIES:
        return _CATEGORIES[region.kind]
    if region.kind in ("block", "whole"):
        return "arch"
    if region.kind == "around a matrix product":
        return "convolution" if any("conv" in name for name in operators) else "matmul"
    if region.kind == "reduction":
        return "pooling" if any("pool" in name for name in operators) else "scan" if "cumsum" in operators else "reduce"
    occurrence = region.occurrences[0]
    return "activation" if len(occurrence.inputs) == 1 and not occurrence.weights else "broadcast"


def _dtype(graph: Graph, occurrence: Occurrence) -> str:
    for name in (*occurrence.outputs, *occurrence.inputs):
        facts = graph.tensor_of(name)
        if facts is not None and facts.dtype in _FLOATS:
            return facts.dtype
    return "float32"


def _variables(graph: Graph, nodes: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A variable for each node, named by its operator; `item` for one of several results."""
    found: dict[str, str] = {}
    used = {*taken, *keyword.kwlist}  # `&` is `aten.__and__`
    for name in nodes:
        word = short_name(graph.node_of[name].operator).strip("_")
        word = {"getitem": "item", "": "value"}.get(word, word).lower()
        number, unique = 2, word
        while unique in used:
            unique, number = f"{word}_{number}", number + 1
        used.add(unique)
        found[name] = unique
    return found


def _seen(graph: Graph, names: Sequence[str]) -> Values | None:
    """What was seen of the tensors that stand in one place of a region's occurrences, together."""
    facts = [graph.tensor_of(name) for name in names]
    values = [each.values for each in facts if each is not None and each.values is not None]
    if not values:
        return None
    values = [_tame(each) for each in values]
    mean = statistics.fmean(each.mean for each in values)
    return Values(
        low=min(each.low for each in values),
        high=max(each.high for each in values),
        mean=mean,
        std=statistics.fmean(each.std**2 + (each.mean - mean) ** 2 for each in values) ** 0.5,
        zeros=statistics.fmean(each.zeros for each in values),
        finite=statistics.fmean(each.finite for each in values),
    )


def _tame(seen: Values) -> Values:
    """With a mean and a spread whose squares are floats: those of float64 numbers may be larger."""
    mean, std = (min(max(value, -_SQUARED), _SQUARED) for value in (seen.mean, seen.std))
    return replace(seen, mean=mean, std=std)


def _weight_line(local: str, item: GraphInput, seen: Values | None) -> str:
    assert item.tensor is not None  # of a parameter, buffer or constant
    value = _constant(item) or tensor_text(replace(item.tensor, values=seen))
    if item.kind == "parameter":
        gradient = "" if item.tensor.dtype in _FLOATS else ", requires_grad=False"
        return f"self.{local} = nn.Parameter({value}{gradient})"
    return f'self.register_buffer("{local}", {value})'


def _constant(item: GraphInput) -> str:
    """The values of a constant; empty if they are not known or too many."""
    facts = item.tensor
    if item.kind != "constant" or facts is None:
        return ""
    try:
        data = base64.b64decode(item.base64, validate=True)
    except binascii.Error:
        return ""
    if not data or len(data) != facts.elements * BYTES[facts.dtype] or len(data) > EMBEDDED_BYTES:
        return ""
    shape = list(facts.shape)
    if facts.elements <= LITERAL_ELEMENTS and facts.dtype in _FORMATS:
        numbers = struct.unpack(f"<{facts.elements}{_FORMATS[facts.dtype]}", data)
        listed = ", ".join(argument_text(number, str) for number in numbers)
        text = f"torch.tensor([{listed}], dtype=torch.{facts.dtype}).reshape({shape})"
    else:
        bytes_ = f'bytearray(base64.b64decode("{item.base64}"))'
        text = f"torch.frombuffer({bytes_}, dtype=torch.{facts.dtype}).reshape({shape})"
    if facts.stride == _contiguous(facts.shape):
        return text
    return f"torch.empty_strided({shape}, {list(facts.stride)}, dtype=torch.{facts.dtype}).copy_({text})"


def _input_text(graph: Graph, occurrence: Occurrence, number: int, seen: Values | None) -> str:
    facts = graph.tensor_of(occurrence.inputs[number])
    assert facts is not None  # a region's inputs are tensors
    if _are_offsets(graph, occurrence, occurrence.inputs[number]) and facts.elements:
        step = max(0, int(seen.high) // max(1, facts.elements - 1)) if seen is not None else 1
        return f"torch.arange({facts.elements}, dtype=torch.{facts.dtype}) * {step}"
    return tensor_text(replace(facts, values=seen))


def _are_offsets(graph: Graph, occurrence: Occurrence, name: str) -> bool:
    """Whether a tensor says where bags of an embedding begin: in ascending order from 0."""
    nodes = [graph.node_of[each] for each in occurrence.nodes]
    bags = [node for node in nodes if "embedding_bag" in node.operator and len(node.args) > 2]
    return any(getattr(node.args[2], "name", None) == name for node in bags)


def _domain(graph: Graph, occurrence: Occurrence) -> str:
    """The DOMAIN of a task that indexes by its inputs: those are never larger than recorded."""
    indexes = set[str]()
    for name in reversed(occurrence.nodes):
        node = graph.node_of[name]
        if class_of(node) == INDEXING or name in indexes:
            indexes.update(ref for ref in node.refs if _is_integer(graph.tensor_of(ref)))
    domains = ["bounded" if name in indexes else "any" for name in occurrence.inputs]
    listed = ", ".join(f'"{each}"' for each in domains)
    return f"[{listed}]" if "bounded" in domains else ""


def _is_integer(facts: TensorFacts | None) -> bool:
    return facts is not None and "int" in facts.dtype


def tensor_text(facts: TensorFacts) -> str:
    """A Python expression for a random tensor of this shape, layout and dtype with values like those seen."""
    shape, stride = facts.shape, facts.stride
    if stride == _contiguous(shape):
        return _drawn(facts, shape)
    order = sorted(range(len(shape)), key=lambda axis: (-stride[axis], axis))
    dense = tuple(shape[axis] for axis in order)
    if tuple(stride[axis] for axis in order) == _contiguous(dense):
        back = [order.index(axis) for axis in range(len(shape))]
        return f"({_drawn(facts, dense)}).permute({back})"
    span = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if facts.elements else 0
    return f"({_drawn(facts, (max(span, 1),))}).as_strided({list(shape)}, {list(stride)})"


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _drawn(facts: TensorFacts, shape: Sequence[int]) -> str:
    """A contiguous tensor of values like those seen."""
    size, seen, dtype = list(shape), facts.values, facts.dtype
    if dtype == "bool":
        triangle = _triangle(size, 1 - seen.zeros if seen else 0.0)
        if triangle:
            return f"torch.ones({size}, dtype=torch.bool).{triangle}"
        return f"torch.rand({size}) < {_number(1 - seen.zeros if seen else 0.5)}"
    if "int" in dtype:
        low, high = (int(seen.low), int(seen.high)) if seen else (0, 1)
        direct = dtype in ("int64", "int32", "int16", "int8", "uint8")
        low, high = max(low, -(2**62)), min(max(high, low), 2**62)
        wide = f"torch.randint({low}, {high + 1}, {size}"
        return f"{wide}, dtype=torch.{dtype})" if direct and dtype != "int64" else f"{wide}){_cast(dtype, 'int64')}"
    if "complex" in dtype or seen is None:
        return f"torch.randn({size}{_dtype_word(dtype)})"
    return _floats(seen, size, dtype)


def _floats(seen: Values, size: list[int], dtype: str) -> str:
    """Floating-point numbers: with infinities and zeros at random places where they were seen."""
    seen, word = _tame(seen), _dtype_word(dtype)
    bounded = seen.high - seen.low < _UNIFORM_SPAN * seen.std
    if seen.low == seen.high:
        text = f"torch.full({size}, {_number(seen.low)}, dtype=torch.{dtype})"
    elif seen.low == 0 and seen.zeros >= _SPARSE and seen.mean > 0 and seen.zeros < 1:
        # A normal distribution, cut off at zero, with this share of zeros and this mean.
        normal = statistics.NormalDist()
        ratio = -normal.inv_cdf(min(max(seen.zeros, 0.001), 0.999))
        std = seen.mean / (normal.pdf(ratio) + ratio * normal.cdf(ratio))
        text = f"({_normal(ratio * std, std, size, word)}).clamp(0, {_number(seen.high)})"
    elif seen.zeros >= _SPARSE and seen.zeros < 1:
        share = 1 - seen.zeros
        mean = min(max(seen.mean / share, seen.low), seen.high)
        std = max((seen.std**2 + seen.mean**2) / share - mean**2, 0.0) ** 0.5
        if std <= _ROUNDING * abs(mean):  # a mask of the lowest number, for instance, beside which others overflow
            text = f"torch.full({size}, {_number(mean)}, dtype=torch.{dtype})"
        else:
            text = f"({_normal(mean, std, size, word)})"
        text += f" * (torch.rand({size}) < {_number(share)})"
    elif bounded and abs(seen.mean - (seen.low + seen.high) / 2) < _CENTRED * (seen.high - seen.low):
        text = f"torch.rand({size}{word})"
        if abs(seen.low) > 1e-3 or abs(seen.high - 1) > 1e-2:
            text = _added(f"{text} * {_number(seen.high - seen.low)}", seen.low)
    elif bounded or seen.low >= 0 or seen.high <= 0:
        ends = f"{_number(seen.low)}, {_number(seen.high)}"
        text = f"({_normal(seen.mean, seen.std, size, word)}).clamp({ends})"
    else:
        text = _normal(seen.mean, seen.std, size, word)
    if seen.low == seen.high == 0 and _triangle(size, seen.finite) == "tril()":
        text = f'torch.full({size}, float("-inf"), dtype=torch.{dtype}).triu(1)'
    elif 0 < seen.finite < 1:
        text = f'torch.where(torch.rand({size}) < {_number(seen.finite)}, {text}, float("-inf"))'
    elif seen.finite == 0:
        text = f'torch.full({size}, float("-inf"), dtype=torch.{dtype})'
    return text


def _triangle(size: Sequence[int], share: float) -> str:
    """How a square mask of ones is cut to a causal one: `tril()` or `triu(1)`, if that leaves this share of ones."""
    side = size[-1] if len(size) > 1 and size[-1] == size[-2] > 1 else 0
    of_visible, of_hidden = (side + 1, side - 1)
    if side and abs(share * 2 * side - of_visible) < 1e-3:
        return "tril()"
    return "triu(1)" if side and abs(share * 2 * side - of_hidden) < 1e-3 else ""


def _normal(mean: float, std: float, size: list[int], word: str) -> str:
    text = f"torch.randn({size}{word})"
    if abs(std - 1) > 0.02:
        text += f" * {_number(std)}"
    return _added(text, mean) if abs(mean) > 0.02 * std else text


def _added(text: str, number: float) -> str:
    if number == 0:
        return text
    return f"{text} - {_number(-number)}" if number < 0 else f"{text} + {_number(number)}"


def _dtype_word(dtype: str) -> str:
    return "" if dtype == "float32" else f", dtype=torch.{dtype}"


def _cast(dtype: str, made: str) -> str:
    return "" if dtype == made else f".to(torch.{dtype})"


def _number(value: float) -> str:
    """A number, with few digits unless rounding could take it out of its dtype's range."""
    return f"{value:.4g}" if abs(value) < _HUGE else repr(value)

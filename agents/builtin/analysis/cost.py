"""A rough estimate of how long a unit's kernels run. It is good enough to rank variations.

The time of a pass over memory is `max(arithmetic, traffic) + UNHIDDEN_SHARE * min(arithmetic, traffic)`. Arithmetic is
the sum of cycles by line, at least the latency of reductions. Traffic is the bytes of buffers that are too large for a
cache.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from agents.builtin.analysis.accesses import GUARD, POINTER, narrowed_ranges, pointer_aliases
from agents.builtin.analysis.buffers import ITEM_BYTES, Buffers, Layout, read_buffers, read_layouts
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, parse_body, walk
from agents.builtin.analysis.reductions import read_update
from agents.builtin.compilation_unit import CompilationUnit

CYCLES_PER_S = 2.5e9
BYTES_PER_S = 20e9
UNHIDDEN_SHARE = 0.25  # of the faster of arithmetic and traffic, which the slower one does not hide
CACHED_BYTES = 256 * 1024  # buffers up to this size cause no traffic
PARALLEL_REGION_S = 5e-6  # to start the threads of a parallel region
BARRIER_S = 1e-6  # at the end of a loop that threads share
HALF_VECTOR_COST = 0.55  # of an operation on a half vector: three of them can run at a time instead of two
MULTIPLIED_SHARE = 0.8  # of the multiplications that a processor can do, which convolutions and products reach
SHORT_PRODUCT = 1 << 18  # multiplications up to which the runtime uses one thread (`kw::SHORT`)
TORCH_VECTOR_BYTES = 32  # torch's own functions use vectors this wide at least
PACKING_ROWS = 24  # a product of torch's packs its second matrix in the time that so many rows of a result take
_OTHER_LINE_CYCLES = 0.5
_PRODUCT = re.compile(r"kw::packed_product<(\d+), (\d+), (\d+), ")
_WINOGRAD = re.compile(r"kw::winograd<(\d+), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+)>")
_LINE_CYCLES = (  # cycles of a line, by the first pattern that matches
    (re.compile(r"^(?:const|static|int64_t|__at_align__)\b|= (?:static_cast<\w+>\(|-?std::numeric|-?[\d.]+L?;)"), 0.0),
    (re.compile(r"^auto \w+ = Vectorized\w*<[\w,]+>\(\w+\);$"), 0.0),  # the compiler moves it out of the loop
    (re.compile(r"welford_vec_reduce_all"), 200.0),
    (re.compile(r"\w+_vec_reduce_all|vec_reduce_all"), 15.0),
    (re.compile(r"transpose_mxn"), 48.0),
    (re.compile(r"welford_combine"), 4.0),
    (re.compile(r"kw::running"), 20.0),
    (re.compile(r"kw::strided<[12]>"), 3.0),
    (re.compile(r"kw::(strided|lookup)"), 12.0),
    (re.compile(r"\.(sin|cos|tan|pow|exp2|log2|log10|a?sinh?|a?cosh?|atanh?|lgamma|fmod|hypot|erfc|expm1)\("), 40.0),
    (re.compile(r"\.(exp\w*|log1?p?|erf|tanh)\("), 14.0),
    (re.compile(r" / | \)/\(|\.sqrt\(|\.rsqrt\(|std::sqrt"), 10.0),
    (re.compile(r"loadu\(|\.store\(|stream_store\(|\bfrom\("), 1.0),
)
_SCALAR_LINE = re.compile(r"is_masked|^tmpbuf\[|\[\w*tmp\d+\[")  # works on one element
_SCALAR_LINE_CYCLES = 1.5
_SHIFTED_VARIABLE = re.compile(r"^const int64_t (\w+) = (\w+) \+ (\d+)L;$")
_LOOP_IN_CHUNK = re.compile(r"^for\(int64_t (\w+)=first; \1<first \+ (\d+)L; \1\+=(\d+)L\)$")
_LATENCY_CYCLES = {"welford": 12.0}
_UPDATE_LATENCY_CYCLES = 4.0
_SCAN_CYCLES = 4.0  # for each element of torch's running sums


@dataclass(frozen=True)
class Prediction:
    """The estimated time of a candidate's kernels without and with a variation."""

    before_s: float
    after_s: float

    def gain(self, measured_s: float | None = None) -> float:
        """The estimated speedup of the whole call. What the measured call took beyond the estimate stays the same."""
        rest = max(0.0, measured_s - self.before_s) if measured_s is not None else 0.0
        after = self.after_s + rest
        return (self.before_s + rest) / after if after > 0 else 1.0


@dataclass(frozen=True)
class _Pass:
    """One pass over memory: `cycles` of all threads together, and `traffic` in bytes."""

    cycles: float
    threads: int
    traffic: float

    @property
    def seconds(self) -> float:
        arithmetic, traffic = self.cycles / self.threads / CYCLES_PER_S, self.traffic / BYTES_PER_S
        return max(arithmetic, traffic) + UNHIDDEN_SHARE * min(arithmetic, traffic)


def estimate_s(unit: CompilationUnit) -> float:
    """The estimated time of one call in seconds, without the overhead of calling kernels."""
    buffers = read_buffers(unit)
    sizes = _sizes(unit, buffers)
    kernels = {kernel.name: _kernel_s(kernel, unit, buffers, sizes) for kernel in unit.module.kernels}
    torchs = max(TORCH_VECTOR_BYTES, unit.generated.vector_bytes)
    total = sum(_multiplications_s(count, unit, torchs) for count in _multiplications(unit, buffers, sizes))
    for statement in unit.module.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                total += kernels[function] if function in kernels else _torch_call_s(function, node, buffers, sizes)
    return total


def _sizes(unit: CompilationUnit, buffers: Buffers) -> dict[str, int]:
    """The size of each root in bytes."""
    items = zip(unit.module.parameters, unit.generated.inputs, strict=False)
    inputs = {name: prod(item.shape) * ITEM_BYTES.get(item.dtype, 1) for name, item in items}
    return {**inputs, **buffers.bytes}


def _multiplications(unit: CompilationUnit, buffers: Buffers, sizes: Mapping[str, int]) -> Iterator[float]:
    """The multiplications of each of torch's convolutions and products, in the time of which others can be done."""
    layouts = read_layouts(unit)
    for statement in unit.module.statements:
        call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        function = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and function == "extern_kernels.convolution" and len(call.args) > 1:
            result = layouts.get(ast.unparse(statement.targets[0])) if isinstance(statement, ast.Assign) else None
            if result is not None and len(result.shape) > 2:
                weights = sizes.get(buffers.roots.get(ast.unparse(call.args[1]), ""), 0) / ITEM_BYTES["float32"]
                yield result.shape[0] * prod(result.shape[2:]) * weights
        elif isinstance(call, ast.Call) and function in ("extern_kernels.mm", "extern_kernels.addmm"):
            a, b = (Layout.of(operand, layouts) for operand in call.args[-2:])
            if a is not None and b is not None and a.shape:
                yield (a.shape[0] + PACKING_ROWS) * prod(b.shape)


def _multiplications_s(count: float, unit: CompilationUnit, vector_bytes: int) -> float:
    """The time of so many fused multiplications and additions: two vectors a cycle at best."""
    a_cycle = 2 * max(16, vector_bytes) / ITEM_BYTES["float32"] * MULTIPLIED_SHARE
    return count / a_cycle / unit.generated.threads / CYCLES_PER_S


def _winograd_s(found: re.Match[str], unit: CompilationUnit) -> float:
    """The time of one of our own convolutions: 16 multiplications a tile and pair of channels, and what is around."""
    batch, height, width, inputs, outputs, down, across = (int(number) for number in found.groups())
    tiles = batch * ((height + 2 * down - 1) // 2) * ((width + 2 * across - 1) // 2)
    around = 4 * (inputs + outputs)  # instructions a tile and element, as many at a time as multiplications
    return _packed_s(16 * tiles * (inputs * outputs + around), 16 * inputs * outputs, unit)


def _packed_s(multiplications: int, packed: int, unit: CompilationUnit) -> float:
    """The time of one of our own products or convolutions, which reads the packed elements once."""
    traffic = _traffic(packed * ITEM_BYTES["float32"]) / BYTES_PER_S
    start = PARALLEL_REGION_S if multiplications > SHORT_PRODUCT else 0.0
    return start + traffic + _multiplications_s(multiplications, unit, unit.generated.vector_bytes)


def _torch_call_s(function: str, call: ast.Call, buffers: Buffers, sizes: Mapping[str, int]) -> float:
    """The time of a call of torch's own: the traffic of its operands, or the arithmetic of a running sum."""
    if not function.startswith(("extern_kernels.", "aten.", "torch.ops.")):
        return 0.0
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    total = sum(_traffic(sizes.get(buffers.roots.get(name, ""), 0)) for name in names)
    scanned = sum(sizes.get(buffers.roots.get(name, ""), 0) for name in names) if ".cum" in function else 0
    return max(total / BYTES_PER_S, scanned / 4 * _SCAN_CYCLES / CYCLES_PER_S)


def _traffic(size: int) -> float:
    return float(size) if size > CACHED_BYTES else 0.0


def _kernel_s(kernel: Kernel, unit: CompilationUnit, buffers: Buffers, sizes: Mapping[str, int]) -> float:
    if found := _WINOGRAD.search(kernel.body):
        return _winograd_s(found, unit)
    if found := _PRODUCT.search(kernel.body):
        rows, inner, columns = (int(number) for number in found.groups())
        return _packed_s(rows * inner * columns, inner * columns, unit)
    nodes = parse_body(kernel.body)
    roots = {
        name: buffers.roots.get(argument, "")
        for name, argument in zip(kernel.names, buffers.arguments.get(kernel.name, ()), strict=False)
    }
    roots |= {alias: roots.get(name, "") for alias, name in pointer_aliases(nodes).items()}
    vector_cost = HALF_VECTOR_COST if 0 < unit.generated.vector_bytes < 64 else 1.0
    total = 0.0
    for node in nodes:
        head = node.head[-1] if isinstance(node, Block) and node.head else ""
        pragmas = " ".join(node.pragmas) if isinstance(node, Block) else ""
        region = "omp parallel" in pragmas
        total += PARALLEL_REGION_S if region else 0.0
        inside = node.body if isinstance(node, Block) and not head.startswith("for") else (node,)
        for child in inside:
            threads = _threads(child, unit.generated.threads) if region else 1
            total += BARRIER_S if threads > 1 else 0.0
            total += _Pass(_cycles((child,), {}, {}, vector_cost), threads, _bytes(child, roots, sizes)).seconds
    return total


def _threads(node: Node, threads: int) -> int:
    """How many threads share a pass."""
    for inner in walk((node,)):
        if isinstance(inner, Block) and any(re.match(r"#pragma omp (parallel )?for\b", line) for line in inner.head):
            deep = inner.body[0] if "collapse(" in " ".join(inner.pragmas) and inner.body else None
            trips = inner.trips * (deep.trips if isinstance(deep, Block) and deep.var else 1)
            return max(1, min(threads, trips if inner.var else threads))
    return 1


def _bytes(node: Node, roots: Mapping[str, str], sizes: Mapping[str, int]) -> float:
    """The traffic of one pass in bytes: a buffer that is read counts once, one that is written twice."""
    weights: dict[str, float] = {}
    for inner in walk((node,)):
        for text in inner.head if isinstance(inner, Block) else (inner.text,):
            for match in POINTER.finditer(text):
                before, after = text[: match.start()], text[match.end() :]
                if before.endswith("stream_store("):
                    weight = 1.0
                elif before.endswith(".store(") or (not before.strip() and after.startswith("[")):
                    weight = 2.0
                else:
                    weight = 2.0 if "transpose_mxn<" in before and not before.endswith(">(") else 1.0
                root = roots.get(match[0], "")
                weights[root] = max(weights.get(root, 0.0), weight)
    return sum(weight * _traffic(sizes.get(root, 0)) for root, weight in weights.items())


def _cycles(
    nodes: tuple[Node, ...], ranges: Mapping[str, tuple[int, int]], steps: Mapping[str, int], vector_cost: float
) -> float:
    """Cycles of executing these nodes once.

    Args:
        nodes: what is executed.
        ranges: first and last value of the variables of loops around them.
        steps: the steps of these variables.
        vector_cost: cost of a vector operation relative to one on full vectors.
    """
    total = 0.0
    for node in nodes:
        if isinstance(node, Line):
            if (placed := _SHIFTED_VARIABLE.match(node.text)) and placed[2] in ranges:
                low, high = ranges[placed[2]]
                ranges = {**ranges, placed[1]: (low + int(placed[3]), high + int(placed[3]))}
                steps = {**steps, placed[1]: steps[placed[2]]}
            total += _line_cycles(node.text, vector_cost)
            continue
        part = _LOOP_IN_CHUNK.match(node.head[-1]) if node.head else None
        if node.var is not None:
            inner = {**ranges, node.var: (node.start, node.start + (node.trips - 1) * node.step)}
            once = _cycles(node.body, inner, {**steps, node.var: node.step}, vector_cost)
            total += node.trips * max(once, _latency_cycles(node.body))
        elif part is not None:
            once = _cycles(node.body, ranges, steps, vector_cost)
            total += int(part[2]) // int(part[3]) * max(once, _latency_cycles(node.body))
        else:
            share = 1.0
            if node.head and (guard := GUARD.match(node.head[-1])):
                share = _executed_share(ranges, narrowed_ranges(dict(ranges), dict(steps), guard[1]), steps)
            once = _cycles(node.body, ranges, steps, vector_cost)
            total += share * (sum(_line_cycles(text, vector_cost) for text in node.head) + once)
    return total


def _executed_share(
    ranges: Mapping[str, tuple[int, int]], inner: Mapping[str, tuple[int, int]], steps: Mapping[str, int]
) -> float:
    """The share of the steps of the loops around a guarded block in which it is executed."""
    share = 1.0
    for name, (first, last) in ranges.items():
        low, high = inner[name]
        share *= max(0, (high - low) // steps[name] + 1) / max(1, (last - first) // steps[name] + 1)
    return share


def _line_cycles(text: str, vector_cost: float) -> float:
    if _SCALAR_LINE.search(text):
        return _SCALAR_LINE_CYCLES
    return vector_cost * next((cycles for pattern, cycles in _LINE_CYCLES if pattern.search(text)), _OTHER_LINE_CYCLES)


def _latency_cycles(body: tuple[Node, ...]) -> float:
    """The least cycles of a step: each update of an accumulator waits for the one before."""
    chains: dict[str, float] = {}
    for text in _step_lines(body):
        update = read_update(text) if "tmp_acc" in text else None
        if update is not None:
            cycles = _LATENCY_CYCLES.get(update.operation, _UPDATE_LATENCY_CYCLES)
            chains[update.accumulator] = chains.get(update.accumulator, 0.0) + cycles
    return max(chains.values(), default=0.0)


def _step_lines(body: tuple[Node, ...]) -> list[str]:
    """The lines that a step executes, without those of inner loops and of partial vectors at the ends of rows."""
    texts: list[str] = []
    for node in body:
        if isinstance(node, Line):
            texts.append(node.text)
        elif node.var is None and not (node.head and "C10_UNLIKELY" in node.head[-1]):
            texts += _step_lines(node.body)
    return texts

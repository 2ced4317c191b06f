"""A rough estimate of how long a unit's kernels run, by what their code shows: enough to rank variations.

Each pass over memory takes about as long as the slower of its arithmetic and its traffic. Arithmetic is counted in
cycles, line by line, with the waiting of reductions for themselves; traffic in bytes of the buffers that are too large
for a cache.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from agents.builtin.analysis.accesses import GUARD, POINTER, aliases, guarded
from agents.builtin.analysis.buffers import ITEM_BYTES, Buffers, read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, parse_body, walk
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.transforms.unroll_sums import read_update

CYCLES_A_S = 2.5e9
BYTES_A_S = 20e9
APART = 0.25  # the part of the faster one, arithmetic or traffic, that the slower one does not hide
CACHED_BYTES = 256 * 1024  # a buffer of at most so many bytes costs no traffic
WAKING_S = 5e-6  # a parallel region
MEETING_S = 1e-6  # the end of a shared loop, where threads wait for each other
NARROW = 0.55  # cycles of an operation on half a vector: three of them can run at a time, not two
_PLAIN_CYCLES = 0.5
_PATTERNS = (  # the first that matches counts: cycles of a line
    (re.compile(r"^(?:const|static|int64_t|__at_align__)\b|= (?:static_cast<\w+>\(|-?std::numeric|-?[\d.]+L?;)"), 0.0),
    (re.compile(r"^auto \w+ = Vectorized\w*<[\w,]+>\(\w+\);$"), 0.0),  # moved out of the loop
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
_ELEMENT = re.compile(r"is_masked|^tmpbuf\[|\[\w*tmp\d+\[")  # lines that are about one element
_ELEMENT_CYCLES = 1.5
_PLACED = re.compile(r"^const int64_t (\w+) = (\w+) \+ (\d+)L;$")
_PART_OF_CHUNK = re.compile(r"^for\(int64_t (\w+)=first; \1<first \+ (\d+)L; \1\+=(\d+)L\)$")
_WAITING = {"welford": 12.0}
_WAITING_PLAIN = 4.0
_SCAN_CYCLES = 4.0  # an element of torch's running sums, one after the other


@dataclass(frozen=True)
class Prediction:
    """The estimates for a candidate without and with a variation."""

    before_s: float
    after_s: float

    def gain(self, measured_s: float | None = None) -> float:
        """How many times faster the whole call may become: what a measured call took beyond the estimate stays."""
        rest = max(0.0, measured_s - self.before_s) if measured_s is not None else 0.0
        after = self.after_s + rest
        return (self.before_s + rest) / after if after > 0 else 1.0


@dataclass(frozen=True)
class _Pass:
    """One pass: `cycles` of all threads together, shared by `threads`, and `traffic` in bytes."""

    cycles: float
    threads: int
    traffic: float

    @property
    def seconds(self) -> float:
        arithmetic, traffic = self.cycles / self.threads / CYCLES_A_S, self.traffic / BYTES_A_S
        return max(arithmetic, traffic) + APART * min(arithmetic, traffic)


def estimate_s(unit: CompilationUnit) -> float:
    """Seconds that one call of the unit may take, without what the calls themselves cost."""
    buffers = read_buffers(unit)
    sizes = _sizes(unit, buffers)
    kernels = {kernel.name: _kernel_s(kernel, unit, buffers, sizes) for kernel in unit.module.kernels}
    total = 0.0
    for statement in unit.module.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                total += kernels[function] if function in kernels else _torch_s(function, node, buffers, sizes)
    return total


def _sizes(unit: CompilationUnit, buffers: Buffers) -> dict[str, int]:
    """Bytes of the buffer behind each root."""
    items = zip(unit.module.parameters, unit.generated.inputs, strict=False)
    inputs = {name: prod(item.shape) * ITEM_BYTES.get(item.dtype, 1) for name, item in items}
    return {**inputs, **buffers.bytes}


def _torch_s(function: str, call: ast.Call, buffers: Buffers, sizes: Mapping[str, int]) -> float:
    """A call of torch's: the traffic of its operands; running sums are slower than that."""
    if not function.startswith(("extern_kernels.", "aten.", "torch.ops.")):
        return 0.0
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    total = sum(_traffic(sizes.get(buffers.roots.get(name, ""), 0)) for name in names)
    scanned = sum(sizes.get(buffers.roots.get(name, ""), 0) for name in names) if ".cum" in function else 0
    return max(total / BYTES_A_S, scanned / 4 * _SCAN_CYCLES / CYCLES_A_S)


def _traffic(size: int) -> float:
    return float(size) if size > CACHED_BYTES else 0.0


def _kernel_s(kernel: Kernel, unit: CompilationUnit, buffers: Buffers, sizes: Mapping[str, int]) -> float:
    nodes = parse_body(kernel.body)
    roots = {
        name: buffers.roots.get(use, "")
        for name, use in zip(kernel.names, buffers.uses.get(kernel.name, ()), strict=False)
    }
    roots |= {alias: roots.get(name, "") for alias, name in aliases(nodes).items()}
    narrow = NARROW if 0 < unit.generated.vector_bytes < 64 else 1.0
    total = 0.0
    for node in nodes:
        head = node.head[-1] if isinstance(node, Block) and node.head else ""
        pragmas = " ".join(node.pragmas) if isinstance(node, Block) else ""
        region = "omp parallel" in pragmas
        total += WAKING_S if region else 0.0
        inside = node.body if isinstance(node, Block) and not head.startswith("for") else (node,)
        for child in inside:
            threads = _threads(child, unit.generated.threads) if region else 1
            total += MEETING_S if threads > 1 else 0.0
            total += _Pass(_cycles((child,), {}, {}, narrow), threads, _bytes(child, roots, sizes)).seconds
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
    """The traffic of one pass: a buffer that is read comes in, one that is written comes in and goes out."""
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
    nodes: tuple[Node, ...], ranges: Mapping[str, tuple[int, int]], steps: Mapping[str, int], narrow: float
) -> float:
    """Cycles of executing these nodes once; `narrow` is what an operation on these vectors takes of a full one's."""
    total = 0.0
    for node in nodes:
        if isinstance(node, Line):
            if (placed := _PLACED.match(node.text)) and placed[2] in ranges:
                low, high = ranges[placed[2]]
                ranges = {**ranges, placed[1]: (low + int(placed[3]), high + int(placed[3]))}
                steps = {**steps, placed[1]: steps[placed[2]]}
            total += _line_cycles(node.text, narrow)
            continue
        part = _PART_OF_CHUNK.match(node.head[-1]) if node.head else None
        if node.var is not None:
            inner = {**ranges, node.var: (node.start, node.start + (node.trips - 1) * node.step)}
            once = _cycles(node.body, inner, {**steps, node.var: node.step}, narrow)
            total += node.trips * max(once, _waiting(node.body))
        elif part is not None:
            once = _cycles(node.body, ranges, steps, narrow)
            total += int(part[2]) // int(part[3]) * max(once, _waiting(node.body))
        else:
            share = 1.0
            if node.head and (guard := GUARD.match(node.head[-1])):
                share = _share(ranges, guarded(dict(ranges), dict(steps), guard[1]), steps)
            once = _cycles(node.body, ranges, steps, narrow)
            total += share * (sum(_line_cycles(text, narrow) for text in node.head) + once)
    return total


def _share(
    ranges: Mapping[str, tuple[int, int]], inner: Mapping[str, tuple[int, int]], steps: Mapping[str, int]
) -> float:
    """Which part of the steps of the loops around it a guarded block is executed in."""
    share = 1.0
    for name, (first, last) in ranges.items():
        low, high = inner[name]
        share *= max(0, (high - low) // steps[name] + 1) / max(1, (last - first) // steps[name] + 1)
    return share


def _line_cycles(text: str, narrow: float) -> float:
    if _ELEMENT.search(text):
        return _ELEMENT_CYCLES
    return narrow * next((cycles for pattern, cycles in _PATTERNS if pattern.search(text)), _PLAIN_CYCLES)


def _waiting(body: tuple[Node, ...]) -> float:
    """Cycles that a step takes at least, because each accumulator waits for its own last value."""
    chains: dict[str, float] = {}
    for text in _straight(body):
        update = read_update(text) if "tmp_acc" in text else None
        if update is not None:
            wait = _WAITING.get(update.operation, _WAITING_PLAIN)
            chains[update.accumulator] = chains.get(update.accumulator, 0.0) + wait
    return max(chains.values(), default=0.0)


def _straight(body: tuple[Node, ...]) -> list[str]:
    """The lines that a step executes but those of inner loops and of the rare ends of rows."""
    texts: list[str] = []
    for node in body:
        if isinstance(node, Line):
            texts.append(node.text)
        elif node.var is None and not (node.head and "C10_UNLIKELY" in node.head[-1]):
            texts += _straight(node.body)
    return texts

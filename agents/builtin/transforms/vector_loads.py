"""The transform `vector_loads`: it reads strided and nearly consecutive elements by vector instructions.

For windows of a pooling and rows of a resized image TorchInductor generates a loop that fills a small array, sometimes
with a test of the mask for each element. The runtime's `kw::strided` and `kw::lookup` load all lanes at once if they
can.
"""

import re

from agents.builtin.analysis.affine import read_affine
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

_ARRAY = re.compile(r"__at_align__ std::array<float, \d+> tmpbuf;$")
_TARGET = re.compile(r"auto (tmp\d+) =$")
_RETURN = re.compile(r"return Vectorized<float>::loadu\(tmpbuf\.data\(\), (\d+)L\);$")
_COPY = re.compile(r"tmpbuf\[(\w+)\] = (\w+)\[(.*)\];$")
_TABLE = re.compile(r"(?<![*\w] )(?<!\*)(tmp\d+)\[x\d+_inner\](?! ?\*)")
_MASK = re.compile(r"if \((tmp\d+)\.is_masked\((\w+)\)\)$")


def vector_loads(unit: CompilationUnit) -> CompilationUnit:
    """Rewrite the copying loops whose vectors are full and of floats."""
    lanes = unit.generated.vector_bytes // 4

    def change(kernel: Kernel) -> Kernel:
        nodes = parse_body(kernel.body)
        changed = _rewrite(nodes, lanes)
        return kernel if changed == nodes else Kernel(kernel.name, kernel.types, kernel.names, render_body(changed))

    return unit.with_kernels(change)


def _rewrite(nodes: tuple[Node, ...], lanes: int) -> tuple[Node, ...]:
    result: list[Node] = []
    position = 0
    while position < len(nodes):
        load = _vector_load(nodes[position : position + 5], lanes)
        if load is not None:
            result.append(Line(load))
            position += 5
            continue
        node = nodes[position]
        if isinstance(node, Block):
            node = Block(node.head, _rewrite(node.body, lanes), node.var, node.start, node.stop, node.step)
        result.append(node)
        position += 1
    return tuple(result)


def _vector_load(nodes: tuple[Node, ...], lanes: int) -> str | None:
    """Five nodes (`auto tmp =`, `[&]`, a block, `()`, `;`) as one vector load; None: they are none."""
    if len(nodes) < 5 or not isinstance(nodes[0], Line) or not isinstance(nodes[2], Block):
        return None
    target = _TARGET.match(nodes[0].text)
    if target is None or [nodes[i] for i in (1, 3, 4)] != [Line("[&]"), Line("()"), Line(";")]:
        return None
    body = nodes[2].body
    if (
        len(body) != 3
        or not isinstance(body[0], Line)
        or not isinstance(body[1], Block)
        or not isinstance(body[2], Line)
    ):
        return None
    returned = _RETURN.match(body[2].text)
    loop = body[1]
    if not _ARRAY.match(body[0].text) or returned is None or int(returned[1]) != lanes or loop.trips != lanes:
        return None
    mask = ""
    inner = loop.body
    if len(inner) == 1 and isinstance(inner[0], Block) and inner[0].head:
        test = _MASK.match(inner[0].head[-1])
        if test is None or test[2] != loop.var:
            return None
        mask, inner = f", {test[1]}", inner[0].body
    copy = _COPY.match(inner[0].text) if len(inner) == 1 and isinstance(inner[0], Line) else None
    if copy is None or copy[1] != loop.var:
        return None
    table = _TABLE.search(copy[3])
    if table is not None and not mask and copy[3].count(f"{copy[1]}]") == 1 and copy[3].count(copy[1]) == 1:
        rest = copy[3].replace(table[0], "0L", 1)
        return f"auto {target[1]} = kw::lookup({copy[2]} + {rest}, {table[1]});"
    index = read_affine(copy[3])
    stride = index.terms.get(copy[1], 0) if index is not None else 0
    if not 1 <= stride <= 16:
        return None
    start = re.sub(rf"\b{copy[1]}\b", "0L", copy[3])
    return f"auto {target[1]} = kw::strided<{stride}>({copy[2]} + {start}{mask});"

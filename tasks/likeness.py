"""How alike two ops are, read from their sources by `ast`: operators, sizes of inputs, dtype, and code without numbers.

Nothing is executed. Sources are hostile, so each function reads a source once, and gives up on one that cannot be read.
"""

import ast
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks import syntax
from tasks.tvm_kernel import CONSTANT

MAX_ELEMENTS = 2**62
OTHER_DTYPE = 0.8  # factor on the likeness of ops of different dtypes
HALF_AT_LOG2 = 16.0  # inputs that differ by a factor of 2**16 in size halve the likeness

_MAKERS = ("get_inputs", "get_init_inputs", "get_input_groups")
_FACTORIES = frozenset({"rand", "randn", "randint", "empty", "zeros", "ones", "full", "arange"})
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
_LEAST_WEIGHT = 0.25
_C_CALL = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]{0,63})[ \t]*\(")
_C_NUMBER = re.compile(r"\b[0-9](?:[eE][+-]|[A-Za-z0-9_.])*")
_C_WORDS = frozenset({"for", "if", "while", "switch", "return", "sizeof", "default_function_kernel"})
# Calls that arrange a module or the view of a tensor and compute nothing.
_BOOKKEEPING = frozenset(
    (
        *("super", "parameter", "register_buffer", "register_parameter", "module", "modulelist", "sequential"),
        *("view", "reshape", "contiguous", "size", "dim", "numel", "to", "type", "float", "int", "t", "flatten"),
        *("unflatten", "squeeze", "unsqueeze", "expand", "len", "range", "zip", "enumerate", "append", "print"),
        *("isinstance", "tuple", "list", "dict", "append", "forward", "op"),
        *_FACTORIES,
    )
)


@dataclass(frozen=True)
class Traits:
    """What is known of an op from its source.

    Attributes:
        operators: the operators that it calls, as `operators_of`, and the arithmetic of its code, without bookkeeping.
            Of an op whose reference is a kernel in C, the functions that the kernel calls.
        dtype: the op's.
        elements: of all inputs together; None: only running the op would tell.
        code: a digest of its code without numbers, comments and the making of inputs, and of its kernel in C without
            numbers. Ops that share it are one op with other sizes.
    """

    operators: frozenset[str]
    dtype: str
    elements: int | None
    code: str


def operators_of(source: str) -> frozenset[str]:
    """The names of the operators and modules that an op calls, in lower case. `x[index]` counts as `getitem`.

    A function of torch may end in an underscore (`scatter_`), which is left out. Of `torch.ops.aten.mul.Tensor` the
    name is `mul`. Empty for a source that is not Python.
    """
    tree = _tree(source)
    return frozenset() if tree is None else frozenset(_called(tree, of_self=True))


def traits_of(source: str, dtype: str) -> Traits:
    """The traits of an op."""
    tree = _tree(source)
    if tree is None:
        return Traits(frozenset(), dtype, None, _digest(source))
    defined = {node.name.lower().rstrip("_") for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    called = _called(tree, of_self=False) - defined - _BOOKKEEPING
    kernel = _c_kernel(tree)
    if kernel is not None:
        elements, code = _elements(tree), f"{_code(tree)} {_C_NUMBER.sub('0', kernel)}"
        return Traits(_c_functions(kernel), dtype, elements, _digest(code))
    # The forms of one operator differ in this: nn.LayerNorm, F.layer_norm, aten.native_layer_norm.
    operators = frozenset({name.replace("_", "").removeprefix("native") for name in called} | _arithmetic(tree))
    return Traits(operators, dtype, _elements(tree), _code(tree))


def rarity(ops: Sequence[Traits]) -> dict[str, float]:
    """How much each operator says of an op: the more, the fewer of these ops call it.

    It is the inverse document frequency (Spärck Jones, *A statistical interpretation of term specificity*, Journal of
    Documentation 28 (1972)) with a floor, so that an operator of all ops still counts.
    """
    counts = Counter(operator for op in ops for operator in op.operators)
    return {operator: _LEAST_WEIGHT + math.log((1 + len(ops)) / (1 + count)) for operator, count in counts.items()}


def likeness(a: Traits, b: Traits, weights: Mapping[str, float]) -> float:
    """How alike two ops are, from 0 to 1: the weighted share of common operators, less for other dtypes and sizes.

    Args:
        a, b: the ops.
        weights: of operators, as `rarity` gives them; 1 for others.
    """
    total = math.fsum(weights.get(operator, 1.0) for operator in sorted(a.operators | b.operators))
    if not total:
        return 0.0
    found = math.fsum(weights.get(operator, 1.0) for operator in sorted(a.operators & b.operators)) / total
    if a.dtype != b.dtype:
        found *= OTHER_DTYPE
    if a.elements and b.elements:
        found /= 1 + abs(math.log2(a.elements) - math.log2(b.elements)) / HALF_AT_LOG2
    return found


def _tree(source: str) -> ast.Module | None:
    try:
        return syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _models(tree: ast.Module) -> Iterable[ast.ClassDef | ast.FunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in _MAKERS)


def _called(tree: ast.Module, *, of_self: bool) -> set[str]:
    """The names of what an op calls. `of_self`: also of what it calls by an attribute of its own (`self.norm(x)`)."""
    found = set()
    for model in _models(tree):
        given = {argument.arg for node in ast.walk(model) if isinstance(node, ast.arguments) for argument in node.args}
        for node in ast.walk(model):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                if of_self or not _is_of_self(node.func):
                    found.add(_name(node.func).lower().rstrip("_"))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.add("matmul")
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in given:
                found.add("getitem")
    return found


def _name(called: ast.Attribute | ast.Name) -> str:
    """The name of what is called; of `torch.ops.aten.NAME.OVERLOAD` the operator's."""
    if isinstance(called, ast.Name):
        return called.id
    of = called.value
    if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Attribute) and of.value.attr == "aten":
        return of.attr
    return called.attr


def _is_of_self(called: ast.Attribute | ast.Name) -> bool:
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self"


def _arithmetic(tree: ast.Module) -> set[str]:
    """The arithmetic of `forward`, or of a plain function."""
    functions = [
        node
        for model in _models(tree)
        for node in (model.body if isinstance(model, ast.ClassDef) else [model])
        if isinstance(node, ast.FunctionDef) and (isinstance(model, ast.FunctionDef) or node.name == "forward")
    ]
    operators = (
        node.op for function in functions for node in ast.walk(function) if isinstance(node, ast.BinOp | ast.AugAssign)
    )
    return {_ARITHMETIC[type(operator)] for operator in operators if type(operator) in _ARITHMETIC}


def _elements(tree: ast.Module) -> int | None:
    """The elements of all tensors that `get_inputs` makes, from the whole numbers in the file."""
    known: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _bind(statement.targets[0], statement.value, known)
    makers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    total = 0
    for node in (each for maker in makers for each in ast.walk(maker)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in _FACTORIES:
            shape = _shape(node, known)
            if shape is None:
                return None
            total += shape
    return min(total, MAX_ELEMENTS) or None


def _bind(target: ast.expr, value: ast.expr, known: dict[str, int]) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for name, each in zip(target.elts, value.elts, strict=True):
            _bind(name, each, known)
    elif isinstance(target, ast.Name) and (number := _number(value, known)) is not None:
        known[target.id] = number


def _shape(call: ast.Call, known: Mapping[str, int]) -> int | None:
    """The number of elements that a factory of torch makes; None: not known."""
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "size")]
    nested = next((each for each in given if isinstance(each, ast.Tuple | ast.List)), None)
    sizes = given if nested is None else nested.elts
    if nested is None and isinstance(call.func, ast.Attribute) and call.func.attr in ("randint", "full"):
        return None
    product = 1
    for each in sizes:
        number = _number(each, known)
        if number is None or number < 0:
            return None
        product = min(product * number, MAX_ELEMENTS)
    return product


def _number(node: ast.expr, known: Mapping[str, int], depth: int = 0) -> int | None:
    """The value of an expression of whole numbers and names of such; None for anything else."""
    if isinstance(node, ast.Constant):
        value = node.value
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_ELEMENTS else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if not isinstance(node, ast.BinOp) or depth > 16:
        return None
    left, right = _number(node.left, known, depth + 1), _number(node.right, known, depth + 1)
    if left is None or right is None:
        return None
    found: int | None = None
    match node.op:
        case ast.Add():
            found = left + right
        case ast.Sub():
            found = left - right
        case ast.Mult():
            found = left * right
        case ast.FloorDiv() if right:
            found = left // right
        case ast.Pow() if 0 <= right <= 62 and abs(left) <= 2**16:
            found = left**right
        case ast.LShift() if 0 <= right <= 62:
            found = left << right
    return found if found is not None and abs(found) < MAX_ELEMENTS else None


class _WithoutNumbers(ast.NodeTransformer):
    """Leaves out of code what differs between two sizes of one op: numbers and docstrings."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replace a number. This is a hook of `ast.NodeTransformer`."""
        is_number = isinstance(node.value, int | float | complex) and not isinstance(node.value, bool)
        return ast.copy_location(ast.Constant(0), node) if is_number else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop a text that stands alone. This is a hook of `ast.NodeTransformer`."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        self.generic_visit(node)
        return node


def _code(tree: ast.Module) -> str:
    """A digest of the op's code. It changes the tree, so it comes last."""
    try:
        text = "\n".join(ast.dump(_WithoutNumbers().visit(model)) for model in _models(tree))
    except RecursionError:  # nested too deeply to be written out
        text = repr([type(node).__name__ for node in ast.walk(tree)])
    return _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _c_kernel(tree: ast.Module) -> str | None:
    """The kernel in C that is an op's reference, where the op is one of those (`tasks.tvm_kernel`)."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == CONSTANT for to in node.targets):
            value = node.value
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def _c_functions(kernel: str) -> frozenset[str]:
    """The functions that C calls, by their names for double: `exp` of `expf(x)`."""
    called = {name.lower() for name in _C_CALL.findall(kernel)} - _C_WORDS
    return frozenset(name if name == "erf" else name.removesuffix("f") for name in called)

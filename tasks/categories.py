"""The category of an op, by what its source calls. The source is read by `ast` only.

The reader lists the work that one call does: functions and methods that are called, arithmetic, and the layers that
`forward` uses, each followed into the classes, methods and functions of the same file. The names of the op, of its file
and of its suite are not looked at. How often the rule agrees with the categories that MultiKernelBench gives to its own
tasks is in docs/tasks.md.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_MAX_STEPS = 2000
_MAX_DEPTH = 12

# The first row whose words match a whole name decides what kind of work the name does. Underscores do not count.
_KINDS: tuple[tuple[str, str], ...] = (
    ("recurrent", r"(lstm|gru|rnn)(cell)?|transformer\w*"),
    ("convolution", r"conv(transpose)?[123]d|unfold"),
    ("attention", r"scaleddotproductattention|multiheadattention|multiheadattentionforward"),
    ("softmax", r"(log)?softmax"),
    ("pooling", r"(adaptive)?(max|avg|lp)pool[123]d"),
    ("resize", r"interpolate|upsample\w*|gridsample|affinegrid|pixel(un)?shuffle"),
    ("loss", r"\w+loss|crossentropy|kldiv|binarycrossentropy\w*|cosinesimilarity"),
    ("normalization", r"(layer|group|batch|instance|rms|local)(response)?norm([123]d)?|rsqrt|normalize"),
    ("matmul", r"matmul|mm|bmm|addmm|addbmm|baddbmm|mv|einsum|(bi)?linear|tensordot|outer|@"),
    ("scan", r"cumsum|cumprod|cummax|cummin|logcumsumexp"),
    ("index", r"gather|scatter\w*|index\w+|embedding(bag)?|take(alongdim)?|arg(max|min|sort)|masked(fill|scatter)|"
     r"nonzero"),
    ("activation", r"(leaky|p|r)?relu6?|gelu|silu|mish|(log|hard)?sigmoid|(hard)?tanh|softplus|soft(sign|shrink)|"
     r"c?elu|selu|hardswish|(hard|tanh)shrink|threshold|glu"),
    ("reduce", r"sum|mean|amax|amin|max|min|prod|var|std|norm|logsumexp|varmean|aminmax|median|all|any"),
    ("broadcast", r"dropout([123]d)?|add|sub|mul|div|pow|maximum|minimum|clamp|where|logical\w+|bitwise\w+"),
)  # fmt: skip

_LAYOUT = re.compile(
    r"view|viewas|reshape|permute|transpose|size|dim|numel|contiguous|(un)?squeeze|flatten|unflatten|expand(as)?|to|t|"
    r"float|half|double|int|long|bool|type|typeas|clone|detach|item|tolist|zeros(like)?|ones(like)?|empty(like)?|"
    r"full(like)?|arange|newzeros|range|len|tuple|list|isinstance|super|getattr|hasattr|print|registerbuffer|"
    r"identity|append|insert|extend|next|iter|enumerate|zip|device|narrow|select|chunk|split|repeat|"
    r"rearrange|shape|copy|sqrt|modulelist|moduledict|sequential|parameter|init|parameters|items|keys|values"
)
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor)

_STEP_OF_OPTIMIZER = frozenset({"grad", "grads", "gradient", "gradients", "param", "params"})
_WANTED = frozenset({"target", "targets", "label", "labels"})
_QUERIES = ({"q", "k", "v"}, {"query", "key", "value"})
_SCALARS = frozenset({"float", "int", "bool"})
_BY_KIND = (
    "convolution", "pooling", "resize", "loss", "normalization", "matmul", "scan", "index", "softmax", "activation",
    "reduce",
)  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class _Work:
    """What one call does.

    Attributes:
        functions: kinds of the functions, methods and operators that are called, one for each place.
        layers: kinds of the layers that are used, one for each place; twice for layers made or used in a loop.
        blocks: classes of the same file that are used as layers.
        divides_by_reduced: whether something is divided by what a reduction gave.
    """

    functions: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    blocks: set[str] = field(default_factory=set)
    divides_by_reduced: bool = False

    @property
    def steps(self) -> list[str]:
        return self.functions + self.layers

    def full(self) -> bool:
        return len(self.functions) + len(self.layers) > _MAX_STEPS


def category_of(tree: ast.Module, parameters: Sequence[str]) -> str:
    """The category of an op, by what it calls and what it takes.

    - an op that takes a gradient or a parameter to change is an `optimizer`;
    - a recurrent network, blocks of classes of the file's own, or several weighted layers with other work between them
      are `arch`, unless they are projections around one attention;
    - scaled dot products, or a softmax between two products, are `attention`;
    - a convolution or product with two or more further steps is `fuse`;
    - any other op has the category of its most specific step, and an op of arithmetic alone is `broadcast` if it takes
      two or more tensors, and `math` if one of two inputs is a number;
    - an op without any known step is `other`.
    """
    taken = {name.lower() for name in parameters}
    if _STEP_OF_OPTIMIZER & taken:
        return "optimizer"
    work, forward = _Work(), None
    reader = _Reader(tree)
    if reader.model is not None:
        forward = reader.methods(reader.model).get("forward")
        reader.read_class(reader.model, work, depth=0)
    else:
        for function in reader.functions.values():
            if not function.name.startswith("get_"):
                forward = forward or function
                reader.read(function, None, work, depth=0)
    return _decide(work, taken, _tensors(forward, parameters))


def _decide(work: _Work, taken: set[str], tensors: int) -> str:
    kinds = set(work.steps)
    heavy_layers = sum(kind in ("convolution", "matmul", "attention", "index") for kind in work.layers)
    products = work.functions.count("matmul")
    attends = "attention" in kinds or ("softmax" in kinds and products >= 2) or any(q <= taken for q in _QUERIES)
    heavy = kinds & {"convolution", "matmul", "attention"}
    if "recurrent" in kinds:
        return "arch"
    between = kinds - {"matmul", "softmax", "attention", "broadcast"}
    if attends and not work.blocks and not between & {"normalization", "convolution", "pooling"}:
        return "attention"
    if heavy and (work.blocks or (heavy_layers >= 2 and kinds - {"convolution", "matmul", "broadcast"})):
        return "arch"
    if "attention" in kinds:
        return "arch"
    if heavy and len(work.steps) >= 3:
        return "fuse"
    if _WANTED & taken or "loss" in kinds:
        return "loss"
    for kind in _BY_KIND:
        if kind == "normalization" and work.divides_by_reduced:
            return kind
        if kind in kinds:
            return "activation" if kind == "softmax" else kind
    if "broadcast" in kinds and len(taken) >= 2:
        return "broadcast" if tensors >= 2 else "math"
    return "other"


class _Reader:
    """Follows the work of an op through the functions, methods and classes of its file."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.model = self.classes.get("Model")
        self._layers: dict[str, dict[str, list[ast.expr]]] = {}
        self._active: set[int] = set()

    def methods(self, owner: ast.ClassDef) -> Mapping[str, Function]:
        """A class's own methods."""
        return {node.name: node for node in owner.body if isinstance(node, Function)}

    def layers(self, owner: ast.ClassDef) -> Mapping[str, list[ast.expr]]:
        """What a class assigns to its attributes, by name."""
        if owner.name not in self._layers:
            found: dict[str, list[ast.expr]] = {}
            for method in self.methods(owner).values():
                for node in ast.walk(method):
                    if isinstance(node, ast.Assign):
                        for target in node.targets:
                            if (name := _own_attribute(target)) is not None:
                                found.setdefault(name, []).append(node.value)
            self._layers[owner.name] = found
        return self._layers[owner.name]

    def read_class(self, owner: ast.ClassDef, work: _Work, depth: int) -> None:
        """Add what a call of a module does."""
        forward = self.methods(owner).get("forward")
        if forward is not None:
            self.read(forward, owner, work, depth)

    def read(self, function: Function, owner: ast.ClassDef | None, work: _Work, depth: int) -> None:
        """Add what a function does. A function that calls itself is followed once."""
        if depth > _MAX_DEPTH or id(function) in self._active or work.full():
            return
        self._active.add(id(function))
        reduced: set[str] = set()
        for statement in function.body:
            self._visit(statement, owner, work, depth, reduced)
        self._active.discard(id(function))

    def _visit(self, node: ast.AST, owner: ast.ClassDef | None, work: _Work, depth: int, reduced: set[str]) -> None:
        waiting: list[ast.AST] = [node]
        while waiting and not work.full():
            node = waiting.pop()
            if isinstance(node, Function | ast.ClassDef):
                continue
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                waiting.append(node.value)
                continue
            if isinstance(node, ast.Subscript):
                work.functions.append("index")
            elif isinstance(node, ast.Assign) and _has_reduction(node.value, reduced):
                reduced.update(each.id for each in node.targets if isinstance(each, ast.Name))
            elif isinstance(node, ast.BinOp | ast.AugAssign):
                self._arithmetic(node, work, reduced)
            elif isinstance(node, ast.Call):
                waiting.extend(self._call(node, owner, work, depth))
                continue
            elif (name := _own_attribute(node)) is not None and owner is not None:
                self._use(name, owner, work, depth)
            waiting.extend(ast.iter_child_nodes(node))

    def _arithmetic(self, node: ast.BinOp | ast.AugAssign, work: _Work, reduced: set[str]) -> None:
        if isinstance(node.op, ast.MatMult):
            work.functions.append("matmul")
        elif isinstance(node.op, _ARITHMETIC) and not _is_number(node):
            work.functions.append("broadcast")
            right = node.right if isinstance(node, ast.BinOp) else node.value
            left = node.left if isinstance(node, ast.BinOp) else node.target
            if isinstance(node.op, ast.Div) and _has_reduction(right, reduced):
                work.divides_by_reduced |= not _has_reduction(left, reduced)

    def _call(self, node: ast.Call, owner: ast.ClassDef | None, work: _Work, depth: int) -> Iterable[ast.AST]:
        """Add what a call does itself; return the parts that are to be visited."""
        inside: list[ast.AST] = [*node.args, *(each.value for each in node.keywords)]
        name = _last(node.func)
        own = _own_attribute(node.func)
        if own is not None and owner is not None:
            method = self.methods(owner).get(own)
            if method is not None:
                self.read(method, owner, work, depth + 1)
            else:
                self._use(own, owner, work, depth)
            return inside
        if isinstance(node.func, ast.Name) and name in self.functions:
            self.read(self.functions[name], None, work, depth + 1)
            return inside
        if isinstance(node.func, ast.Name) and name in self.classes:
            work.blocks.add(name)
            self.read_class(self.classes[name], work, depth + 1)
            return inside
        if isinstance(node.func, ast.Attribute):
            inside.append(node.func.value)
        elif not isinstance(node.func, ast.Name):
            inside.append(node.func)
        folded = name.lower().replace("_", "")
        if _LAYOUT.fullmatch(folded):
            return inside[len(node.args) + len(node.keywords) :] or inside[:1]
        kind = _kind(folded)
        if kind is not None:
            work.functions.append(kind)
        return inside

    def _use(self, name: str, owner: ast.ClassDef, work: _Work, depth: int) -> None:
        """Add what a use of a module's attribute does: the layers that it holds."""
        for value in self.layers(owner).get(name, ()):
            self._constructed(value, owner, work, depth + 1, times=1)

    def _constructed(self, value: ast.AST, owner: ast.ClassDef, work: _Work, depth: int, times: int) -> None:
        """Add the layers that an expression constructs."""
        if depth > _MAX_DEPTH or work.full():
            return
        for node in _walk_calls(value):
            name, own = _last(node.func), _own_attribute(node.func)
            if own is not None and (method := self.methods(owner).get(own)) is not None:
                self._in_function(method, owner, work, depth)
            elif isinstance(node.func, ast.Name) and name in self.classes:
                work.blocks.add(name)
                self.read_class(self.classes[name], work, depth + 1)
            elif isinstance(node.func, ast.Name) and (helper := self._helper(name, owner)) is not None:
                self._in_function(helper, owner, work, depth)
            elif name in _CONTAINERS:
                listed = [each.value if isinstance(each, ast.Starred) else each for each in node.args]
                if any(isinstance(each, ast.Name) for each in listed):  # a list that the constructor has filled
                    self._in_function(self.methods(owner).get("__init__"), owner, work, depth)
                elif any(isinstance(each, ast.ListComp | ast.GeneratorExp) for each in listed):
                    times = 2
            elif name[:1].isupper() and (kind := _kind(name.lower().replace("_", ""))) is not None:
                work.layers.extend([kind] * times)

    def _helper(self, name: str, owner: ast.ClassDef) -> Function | None:
        """The function of this name that a class's constructor defines inside itself."""
        constructor = self.methods(owner).get("__init__")
        inside = () if constructor is None else constructor.body
        return next((each for each in inside if isinstance(each, Function) and each.name == name), None)

    def _in_function(self, function: Function | None, owner: ast.ClassDef, work: _Work, depth: int) -> None:
        if function is None or id(function) in self._active:
            return
        self._active.add(id(function))
        for statement in function.body:
            times = 2 if isinstance(statement, ast.For | ast.While) else 1
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and _last(node.func) == "append":
                    for each in node.args:
                        self._constructed(each, owner, work, depth + 1, times)
                elif isinstance(node, ast.Assign | ast.Return) and node.value is not None:
                    self._constructed(node.value, owner, work, depth + 1, times)
        self._active.discard(id(function))


def _walk_calls(value: ast.AST) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(value) if isinstance(node, ast.Call))


def _kind(name: str) -> str | None:
    return next((kind for kind, words in _KINDS if re.fullmatch(words, name[:64])), None)


def _last(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr[:64]
    return function.id[:64] if isinstance(function, ast.Name) else ""


def _own_attribute(node: ast.AST) -> str | None:
    """X of `self.X`; None of anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def _is_number(node: ast.BinOp | ast.AugAssign) -> bool:
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return all(isinstance(each, ast.Constant) for each in parts) and isinstance(node, ast.BinOp)


def _has_reduction(value: ast.AST, reduced: set[str]) -> bool:
    """Whether an expression reduces something, or holds a name that stands for such a result."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and _kind(_last(node.func).lower().replace("_", "")) == "reduce":
            return True
        if isinstance(node, ast.Name) and node.id in reduced:
            return True
    return False


def _tensors(forward: Function | None, parameters: Sequence[str]) -> int:
    """How many of the inputs are tensors: all but those that are annotated as numbers."""
    arguments = [] if forward is None else [*forward.args.posonlyargs, *forward.args.args]
    numbers = {each.arg for each in arguments if isinstance(each.annotation, ast.Name)
               and each.annotation.id in _SCALARS}  # fmt: skip
    return sum(name not in numbers for name in parameters)

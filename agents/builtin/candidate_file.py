"""Writes the file of a candidate: the op's class, the generated kernels, and a `forward` that calls them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.builtin.analysis.inductor_module import Kernel, Module
from agents.builtin.call_body import PREPARED, rewrite_call
from agents.builtin.errors import NotTranslatable
from agents.builtin.generated import Generated, Input
from agents.builtin.op_frame import REFERENCE_FORWARD, Frame

HEADER = "# kernelwright builtin/compiler: "
DEFAULT_FLAGS = (
    "-O3",
    "-march=native",
    "-DNDEBUG",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fno-tree-loop-vectorize",
)
_RUNTIME_BEGINS = "#define KW_VEC_BYTES "
_RUNTIME_ENDS = "using namespace at::vec;"
_RUNTIME = Path(__file__).parent / "runtime"
_MATH = re.compile(r"\.(exp|exp_u20|fexp_u20|log|log1p|erf|tanh|sqrt|rsqrt|round|floor|ceil|trunc)\(\)|Vec\w*<double")
_SLEEF = re.compile(
    r"\.(exp2|expm1|erfc|log2|log10|sin|cos|tan|sinh|cosh|asin|acos|atan|asinh|acosh|atanh|lgamma|pow|atan2|fmod|hypot)\("
    r"|Vec\w*<double"
)
_REDUCE = re.compile(r"vec_reduce_all|_masked_reduce|[Ww]elford|ascade|arg(max|min)_|IndexValue")
_LAYOUT = re.compile(r"transpose_mxn|atomic_add|kw::(strided|lookup|running)")
_WINOGRAD = re.compile(r"kw::winograd")
_PACKED = re.compile(r"kw::packed_product|kw::winograd")
_INTEGER = re.compile(r"_integral\(|\bmod\(|div_floor_floating_vec")
_FUNCTION_CALL = re.compile(r"(?<![\w:])([A-Za-z_]\w*)\s*(?:<[^;()]*>)?\(")
_KEYWORDS = frozenset(
    {"for", "if", "while", "return", "sizeof", "alignof", "alignas", "decltype", "static_cast", "reinterpret_cast"}
    | {"int", "float", "double", "bool", "long", "auto"}
)
_NOT_CODE = re.compile(r"#pragma.*|\"[^\"\n]*\"")
_LOCAL_NAME = re.compile(
    r"tmp\w*|x\d+\w*|\w*(?:welford|cascade)_helper\d+(?:_part\d)?|data|get|int\d+_t|omp_get_\w+|\w+_masked_reduce"
    r"|arg(?:max|min)_\w+"
)

_HELPERS = {
    "view": """
def view(tensor, shape, stride, offset):
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)

""",
    "check_layout": """
def check_layout(tensor, shape, stride):
    if tensor.shape != shape or tensor.stride() != stride:
        raise RuntimeError(f"torch laid out {tuple(tensor.shape)} as {tensor.stride()}, and the kernels need {stride}")

""",
    PREPARED: f"""
def {PREPARED}(module, key, parameter, shape, kernel):
    \"\"\"What `kernel` makes of a parameter, kept until torch counts a change of it (not one through `.data`).\"\"\"
    kept = module.__dict__.setdefault("_{PREPARED}", {{}})
    found = kept.get(key)
    if found is None or parameter.is_inference() or found[0] != (parameter.data_ptr(), parameter._version):
        made = torch.empty(shape, dtype=torch.float32, device="cpu")
        kernel(parameter.data_ptr(), made.data_ptr())
        if parameter.is_inference():  # its changes are not counted
            return made
        # The alias keeps another parameter from getting the same address.
        found = kept[key] = (parameter.data_ptr(), parameter._version), made, parameter.detach()
    return found[1]

""",
}


def write_candidate(
    frame: Frame,
    generated: Generated,
    module: Module,
    *,
    header: Mapping[str, Any],
    flags: Sequence[str] = DEFAULT_FLAGS,
) -> str:
    """The source of a candidate.

    Args:
        frame: the op's source around the kernels.
        generated: how the kernels are called.
        module: the kernels, and the statements of the generated `call`.
        header: JSON for the first line of the file.
        flags: for g++, besides the fixed ones.

    Raises:
        NotTranslatable: the generated call has an unknown form.
    """
    if len(module.parameters) != len(generated.inputs):
        raise NotTranslatable("the generated call takes other arguments than were exported")
    lines, returned = rewrite_call(module.statements, module.parameters, [kernel.name for kernel in module.kernels])
    if len(returned) != len(generated.outputs):
        raise NotTranslatable("the generated call returns another number of results")
    result = _result(generated, module.parameters, returned)
    sleef = any(_SLEEF.search(kernel.body) for kernel in module.kernels)
    parts = [
        HEADER + json.dumps(header, sort_keys=True),
        _docstring(generated),
        "import ctypes\nimport subprocess\nimport tempfile\nfrom pathlib import Path\n",
        frame.before_class,
        "import torch\n",
        f"SOURCE = r'''\n{cpp_source(module.kernels, generated.vector_bytes)}'''\n",
        _build(module.kernels, flags, sleef),
        *(text for name, text in _HELPERS.items() if any(name + "(" in line for line in [*lines, result])),
        _constants(generated),
        frame.class_source,
        _methods(frame, generated, module.parameters, lines, result),
        frame.after_class,
    ]
    return "\n".join(part for part in parts if part) + "\n"


def write_fallback(frame: Frame, header: Mapping[str, Any], reason: str) -> str:
    """The source of a candidate that only calls torch.compile; `reason` is given in its docstring."""
    plain = "".join(character for character in reason if character.isprintable())[:300].replace("\\", "/")
    method = f"""
    def forward({frame.signature}):
        if not hasattr(self, "compiled"):
            object.__setattr__(self, "compiled", torch.compile(self.{REFERENCE_FORWARD}, dynamic=False))
        return self.compiled({_passed_on(frame)})
"""
    return "\n".join(
        [
            HEADER + json.dumps(header, sort_keys=True),
            '"""Written by kernelwright\'s builtin/compiler, a compiler search and no LLM.\n\n'
            "It has no kernel of its own: torch.compile does everything, because the generated code could not be\n"
            "made self-contained\n"
            f"({plain.replace(chr(34), chr(39))}).\n"
            '"""',
            frame.before_class,
            "import torch\n",
            frame.class_source + "\n" + method,
            frame.after_class,
        ]
    )


def cpp_source(kernels: Sequence[Kernel], vector_bytes: int) -> str:
    """One C++ translation unit: the kernels, and those headers of the runtime that they use.

    Raises:
        NotTranslatable: a kernel calls a function that the runtime does not have.
    """
    text = "\n".join(_function(kernel) for kernel in kernels)
    names = ["core.h"]
    if _MATH.search(text) or _SLEEF.search(text):
        names.append("math.h")
    if _REDUCE.search(text):
        names.append("reduce.h")
    if _LAYOUT.search(text):
        names.append("layout.h")
    if _INTEGER.search(text):
        names.append("integer.h")
    if _PACKED.search(text):
        names.append("product.h")
    if _WINOGRAD.search(text):
        names.append("winograd.h")
    runtime = "\n".join((_RUNTIME / name).read_text() for name in names)
    words = set(re.findall(r"\w+", runtime))
    bodies = _NOT_CODE.sub("", "\n".join(kernel.body for kernel in kernels))
    for name in _FUNCTION_CALL.findall(bodies):
        if name not in words and name not in _KEYWORDS and not _LOCAL_NAME.fullmatch(name):
            raise NotTranslatable(f"a kernel that calls {name}")
    return f"{_RUNTIME_BEGINS}{vector_bytes or 16}\n{runtime}\n{_RUNTIME_ENDS}\n\n{text}\n"


def without_runtime(source: str) -> str:
    """A candidate of the built-in model without the runtime in it, for readers: it is the same in all candidates."""
    begin = source.find(_RUNTIME_BEGINS)
    begin = source.find("\n", begin) + 1 if begin >= 0 else -1
    end = source.find(f"\n{_RUNTIME_ENDS}", begin) + 1 if begin > 0 else 0
    if end <= 0:
        return source
    said = f"{source.count(chr(10), begin, end)} lines are left out: the runtime of builtin/compiler (at::vec, kw::)"
    return f"{source[:begin]}// {said}\n{source[end:]}"


def _function(kernel: Kernel) -> str:
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip(kernel.types, kernel.names, strict=True))
    return f'extern "C" void {kernel.name}({parameters})\n{{{kernel.body}}}\n'


def _docstring(generated: Generated) -> str:
    return f'''"""WrittenCandidate by kernelwright's builtin/compiler, a compiler search and no LLM.

TorchInductor's kernels (torch {generated.torch}) with a small runtime of their own, built by g++ when this file is
imported. They are made for the shapes of the task; for other inputs `forward` runs the reference's torch code.
"""
'''


def _build(kernels: Sequence[Kernel], flags: Sequence[str], sleef: bool) -> str:
    libraries = ', "-L" + str(Path(torch.__file__).parent / "lib"), "-l:libtorch_cpu.so"' if sleef else ""
    counts = ", ".join(f"{kernel.name!r}: {len(kernel.names)}" for kernel in kernels)
    return f'''FLAGS = {list(flags)!r}


def build():
    """The kernels, compiled and loaded. The library shares the OpenMP runtime that torch has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(SOURCE)
        fixed = ["-std=c++17", "-shared", "-fPIC", "-fopenmp", "-Wno-psabi"]
        subprocess.run(["g++", *FLAGS, *fixed, str(source), "-o", str(library){libraries}], check=True)
        loaded = ctypes.CDLL(str(library))
    for name, count in {{{counts}}}.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = [ctypes.c_void_p] * count, None
    return loaded


LIBRARY = build()
'''


def _constants(generated: Generated) -> str:
    lines = [
        f"CONSTANT_{position} = torch.frombuffer(bytearray(__import__('base64').b64decode({item.base64!r})), "
        f"dtype=torch.{item.dtype}).reshape({list(item.shape)!r})"
        for position, item in enumerate(generated.inputs)
        if item.kind == "constant_tensor" and item.base64
    ]
    return "\n".join(lines)


def _methods(frame: Frame, generated: Generated, parameters: Sequence[str], lines: Sequence[str], result: str) -> str:
    leaves = list(_leaves(frame, generated.arguments))
    unpacked: list[str] = []
    checks: list[str] = [f"self.training is {generated.training}"]
    for position, (name, item) in enumerate(zip(parameters, generated.inputs, strict=True)):
        if item.kind in ("argument", "scalar"):
            value = leaves.pop(0)
        elif item.kind == "constant_tensor":
            value = f"CONSTANT_{position}" if item.base64 else "None"
        else:
            value = _attribute(item.name)
        unpacked.append(f"{name} = {value}")
        if item.kind == "scalar":
            checks.append(f"type({name}) is {type(item.value).__name__} and {name} == {item.value!r}")
        elif item.kind != "constant_tensor":
            checks.append(_check(name, item))
    body = [
        f"    def forward({frame.signature}):",
        *(f"        {line}" for line in unpacked),
        "        if not (",
        *(f"            {'and ' if i else ''}{check}" for i, check in enumerate(checks)),
        "        ):",
        f"            return self.{REFERENCE_FORWARD}({_passed_on(frame)})",
        "        with torch.no_grad():",
        *(f"            {line}" for line in lines),
        f"            return {result}",
        "",
    ]
    return "\n" + "\n".join(body)


def _passed_on(frame: Frame) -> str:
    """The arguments of `forward` as they are passed to another function."""
    return ", ".join([*frame.arguments, *([f"*{frame.varargs}"] if frame.varargs else [])])


def _check(name: str, item: Input) -> str:
    return (
        f"{name}.shape == {_tuple(item.shape)} and {name}.stride() == {_tuple(item.stride)} "
        f"and {name}.dtype is torch.{item.dtype} and {name}.is_cpu"
    )


def _tuple(values: Sequence[int]) -> str:
    return repr(tuple(values))


def _attribute(name: str) -> str:
    path = "self"
    for part in name.split("."):
        path = f"getattr({path}, {part!r})" if not part.isidentifier() else f"{path}.{part}"
    return path


def _leaves(frame: Frame, tree: Any) -> Iterator[str]:
    """An expression for each leaf of the arguments of `forward`, in order."""
    if tree[0] not in ("tuple", "list"):
        raise NotTranslatable("forward's arguments are no sequence")
    for position, child in enumerate(tree[1]):
        if position < len(frame.arguments):
            name = frame.arguments[position]
        elif frame.varargs is not None:
            name = f"{frame.varargs}[{position - len(frame.arguments)}]"
        else:
            raise NotTranslatable("forward takes fewer arguments than get_inputs gives")
        yield from _paths(name, child)


def _paths(prefix: str, tree: Any) -> Iterator[str]:
    if tree[0] == "leaf":
        yield prefix
    elif tree[0] == "dict":
        for key, child in zip(tree[1], tree[2], strict=True):
            yield from _paths(f"{prefix}[{key!r}]", child)
    else:
        for position, child in enumerate(tree[1]):
            yield from _paths(f"{prefix}[{position}]", child)


def _result(generated: Generated, parameters: Sequence[str], returned: Sequence[str]) -> str:
    leaves: list[str] = []
    for output, text in zip(generated.outputs, returned, strict=True):
        if output.kind == "computed":
            leaves.append(text)
        elif output.kind == "input":
            leaves.append(parameters[output.index])
        else:
            source = parameters[output.index]
            leaves.append(f"{source}.as_strided({_tuple(output.shape)}, {_tuple(output.stride)}, {output.offset})")
    remaining = iter(leaves)
    text = _build_tree(generated.result, remaining)
    if next(remaining, None) is not None:
        raise NotTranslatable("more results than the reference returns")
    return text


def _build_tree(tree: Any, leaves: Iterator[str]) -> str:
    if tree[0] == "leaf":
        leaf = next(leaves, None)
        if leaf is None:
            raise NotTranslatable("fewer results than the reference returns")
        return leaf
    if tree[0] == "dict":
        items = (f"{key!r}: {_build_tree(child, leaves)}" for key, child in zip(tree[1], tree[2], strict=True))
        return "{" + ", ".join(items) + "}"
    children = [_build_tree(child, leaves) for child in tree[1]]
    if tree[0] == "list":
        return "[" + ", ".join(children) + "]"
    return "(" + ", ".join(children) + ("," if len(children) == 1 else "") + ")"

"""Ops whose reference is a kernel that TVM wrote in C: the records of HPCTransCompile's benchmark HPCTransEval.

A record has the kernel in C, the same kernel in CUDA, and TVM's intermediate code, whose `main` names the parameters in
the order in which callers give them: inputs, then outputs. The C function takes them in an order of its own. Nothing of
a record is executed here: JSON and the intermediate code, which is Python's grammar, are parsed.

The op that is made of it builds the C with g++ where it runs, once in float and once in double (the oracle), and
brings the CUDA kernel as its SOURCE_KERNEL.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import syntax
from tasks.parse import MAX_BRACES
from tasks.source_kernel import SourceKernel, check_source_kernel, constant_text
from tasks.text import clean_text, read_source, task_error

CONSTANT = "C_KERNEL"
"""The constant of such an op that holds the kernel."""

MAX_RECORDS_BYTES = 16 * 1024 * 1024
MAX_RECORDS = 1000
MAX_DIMENSIONS = 8
MAX_PARAMETERS = 64
_KERNEL = re.compile(r"\s*void\s+default_function_kernel\(([^()]*)\)\s*\{")
_PARAMETER = re.compile(r"(float|int32_t|int8_t)\* ([A-Za-z_][A-Za-z0-9_]{0,99})")
_ALIAS = re.compile(r"\s*(\w+) = T\.Buffer\(.*data=(\w+)(?:\.data)?\)\s*$")
_INDEXED = re.compile(r"\b([A-Za-z_]\w*)\[")
_WRITTEN = re.compile(r"\s*[A-Za-z_]\w*\[.*\] = ")
_DTYPES = {"float32": "float", "int32": "int32_t", "bool": "int8_t"}
_NOTES = (
    "TVM wrote it. Its launch is not recorded: a block has as many threads as __launch_bounds__ says, and the blocks "
    "cover the output."
)
_CATEGORIES = (
    ("convolution", r"conv|depthwise"),
    ("pooling", r"pool"),
    ("matmul", r"matmul"),
    ("normalization", r"softmax|norm|lrn|scale_shift"),
    ("resize", r"resize|upsampling|grid_sample"),
    ("index", r"gather|scatter|slice|pad|depth|space|reshape|transpose|flip|reorg|unpack|dilate|flatten|argsort"),
    ("activation", r"relu|tanh|sigmoid|erf"),
    ("reduce", r"sum|prod|max|min"),
)
_BY_FILE = {"ComputationGraph": "fuse", "ModelBuildingBlock": "arch"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name in C, its dtype as torch says it, its shape, and whether it is an output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_output: bool


@dataclass(frozen=True)
class Record:
    """A record of a file: the number of its place from 1, its op's name, and the source of the op made of it.

    `problem` says why it has none.
    """

    number: int
    name: str
    source: str = ""
    problem: str = ""


def read_records(path: Path) -> Iterator[Record]:
    """The records of one of HPCTransEval's JSON files.

    Raises:
        TaskError: the file cannot be read or is no list of records.
    """
    where = str(path)
    data = read_source(path, what="file of records", at_most=MAX_RECORDS_BYTES)
    try:
        records = json.loads(data)
    except (ValueError, RecursionError, MemoryError):
        raise task_error(where, "is not JSON", "name an unchanged clone of HPCTransCompile") from None
    if not isinstance(records, list) or len(records) > MAX_RECORDS:
        raise task_error(where, f"is not a list of up to {MAX_RECORDS} records", "name an unchanged clone")
    for number, record in enumerate(records, start=1):
        name = record.get("op_name") if isinstance(record, dict) else None
        shown = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:60] if isinstance(name, str) else "record"
        try:
            yield Record(number, shown, source=_op(record, number, path.stem))
        except _Unusable as unusable:
            yield Record(number, shown, problem=str(unusable))


class _Unusable(Exception):
    """Why a record cannot be made an op."""


def _op(record: Any, number: int, file: str) -> str:
    """The source of the op of a record.

    Raises:
        _Unusable: it cannot be made one.
    """
    texts = {key: _text(record, key) for key in ("op_name", "c_code", "cuda_code", "ir_code")}
    parameters = read_parameters(texts["c_code"], texts["ir_code"])
    kernel = SourceKernel("cuda", texts["cuda_code"].strip() + "\n", notes=_NOTES)
    try:
        check_source_kernel(kernel, "its CUDA kernel")
    except ValueError as error:
        raise _Unusable(str(error)) from None
    category = _BY_FILE.get(file) or next(
        (name for name, pattern in _CATEGORIES if re.search(pattern, texts["op_name"])), "math"
    )
    name = re.sub(r"[^A-Za-z0-9_ ]", "_", texts["op_name"])[:60]
    head = f'"""{name}: record {number} of HPCTransEval/{file}.json. A kernel of TVM in C is the reference.'
    return "\n".join(
        [
            f'{head}\n\nCategory: {category}\n"""\n',
            _IMPORTS,
            _generators(parameters, texts["c_code"]),
            module_source("Model", texts["c_code"], parameters),
            constant_text(kernel),
        ]
    )


def _text(record: Any, key: str) -> str:
    text = record.get(key) if isinstance(record, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise _Unusable(f"has no text {key!r}")
    if clean_text(text) != text:
        raise _Unusable(f"holds a null byte or a lone surrogate in {key!r}")
    return text


def read_parameters(c_code: str, ir_code: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel in the order of callers: inputs, then outputs.

    C and intermediate code may number their parameters differently. Both are the same program, so the parameters that
    are written are those of the other code in the order in which they are first used, and so are those that are only
    read. One that the kernel does not use is an input all the same. What follows the last that is only read is an
    output; the first is an input.

    Raises:
        _Unusable: C and intermediate code do not fit together, or have parts that are not known here.
    """
    types, buffers = dict(_c_parameters(c_code)), _buffers(ir_code)
    names = {name for name, _, _ in buffers}
    of_c = _uses(c_code[c_code.index("{") :], set(types))
    _, main, rest = ir_code.partition("def main(")
    if not main:
        raise _Unusable("its intermediate code does not write `def main(`")
    of_ir = _uses(rest.partition("):\n")[2], names)
    if [len(group) for group in of_c] != [len(group) for group in of_ir] or sum(map(len, of_c)) != len(types):
        raise _Unusable("its C uses other parameters than its intermediate code")
    in_c = dict(zip(of_ir[0] + of_ir[1], of_c[0] + of_c[1], strict=True))
    for name, dtype, _ in buffers:
        if name in in_c and types[in_c[name]] != _DTYPES[dtype]:
            raise _Unusable(f"its parameter {name} is {dtype} in one code and {types[in_c[name]]} in the other")
    inputs = max((place + 1 for place, (name, _, _) in enumerate(buffers) if name not in of_ir[0]), default=1)
    if inputs == len(buffers):
        raise _Unusable("its kernel has no output")
    return tuple(
        Parameter(in_c.get(name, f"unused_{place}"), dtype, shape, is_output=place >= inputs)
        for place, (name, dtype, shape) in enumerate(buffers)
    )


def _uses(body: str, names: set[str]) -> tuple[list[str], list[str]]:
    """Of these parameters, those that a body of either code writes to and those that it only reads, by first use."""
    owner = {name: name for name in names}
    seen: list[str] = []
    written: set[str] = set()
    for line in body.splitlines():
        if alias := _ALIAS.match(line):
            owner[alias[1]] = owner.get(alias[2], alias[2])
            continue
        used = [owner.get(name, "") for name in _INDEXED.findall(line)]
        seen += [name for name in dict.fromkeys(used) if name in names and name not in seen]
        if used and _WRITTEN.match(line):
            written.add(used[0])
    return [name for name in seen if name in written], [name for name in seen if name not in written]


def _c_parameters(c_code: str) -> list[tuple[str, str]]:
    """Names and types of the C function's parameters, in its own order."""
    match = _KERNEL.match(c_code)
    if match is None:
        raise _Unusable("its C does not begin with the function default_function_kernel")
    found = []
    for text in match[1].split(","):
        parameter = _PARAMETER.fullmatch(text.strip())
        if parameter is None:
            raise _Unusable(f"its C has a parameter {text.strip()[:60]!r}")
        found.append((parameter[2], parameter[1]))
    return found


def _buffers(ir_code: str) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of each parameter of the intermediate code's `main`: `name: T.Buffer(shape, dtype)`."""
    try:
        if ir_code.count("{") > MAX_BRACES:
            raise ValueError
        tree = syntax.parse(ir_code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Unusable("its intermediate code cannot be parsed") from None
    mains = [
        node
        for top in tree.body
        if isinstance(top, ast.ClassDef)
        for node in top.body
        if isinstance(node, ast.FunctionDef) and node.name == "main"
    ]
    if len(mains) != 1:
        raise _Unusable("its intermediate code has no one function main")
    found = []
    for argument in mains[0].args.args[: MAX_PARAMETERS + 1]:
        try:
            assert isinstance(argument.annotation, ast.Call)
            shape, dtype = (ast.literal_eval(each) for each in argument.annotation.args)
            known = dtype in _DTYPES and isinstance(shape, tuple) and len(shape) <= MAX_DIMENSIONS
            assert known and all(type(size) is int and 0 < size <= 2**31 for size in shape)
        except (AssertionError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise _Unusable(f"its parameter {argument.arg[:60]} is no buffer that is known here") from None
        found.append((argument.arg, dtype, shape))
    if not 1 < len(found) <= MAX_PARAMETERS:
        raise _Unusable(f"its intermediate code has {len(found)} parameters")
    return found


def candidate_source(task_source: str, c_code: str) -> str | None:
    """A candidate for such an op, whose kernel is this C; None: the op is none of those.

    The kernel is called as the op's own: the same function with the same parameters, in any order.

    Raises:
        ValueError: the C has no such function.
    """
    if CONSTANT not in task_source:
        return None
    constants = {
        target.id: node.value
        for node in syntax.parse(task_source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if CONSTANT not in constants or "PARAMETERS" not in constants:
        return None
    parameters = tuple(Parameter(*each) for each in ast.literal_eval(constants["PARAMETERS"]))
    try:
        given, own = dict(_c_parameters(c_code)), {each.name: _DTYPES[each.dtype] for each in parameters}
    except _Unusable as unusable:
        raise ValueError(str(unusable)) from None
    for name, kind in given.items():
        if own.get(name) != kind:
            raise ValueError(f"its C has a parameter {kind}* {name}, which the op's kernel has not")
    return f"{_IMPORTS}\n{module_source('ModelNew', c_code, parameters)}"


def _generators(parameters: tuple[Parameter, ...], c_code: str) -> str:
    """The declaration of domains, `get_inputs` and `get_init_inputs`.

    Floating-point inputs are drawn as the benchmark draws them: uniformly from 0 to 1. Integers are indices: below the
    smallest size of any floating-point input, so in range whatever they index. A floating-point input that is cast to
    an index is used as it is drawn only.
    """
    inputs = [each for each in parameters if not each.is_output]
    smallest = min((size for each in inputs if each.dtype == "float32" for size in each.shape), default=1)
    lines, domains = [], []
    for each in inputs:
        shape = ", ".join(map(str, each.shape))
        if each.dtype == "float32":
            lines.append(f"torch.rand({shape})")
            is_index = re.search(rf"\[[^;]*\(\(int32_t\){re.escape(each.name)}\[", c_code)
            domains.append("fixed" if is_index else "finite")
        else:
            lines.append(f"torch.randint(0, {smallest}, ({shape},), dtype=torch.{each.dtype})")
            domains.append("fixed")
    body = "".join(f"        {line},\n" for line in lines)
    return (
        "# TVM's C and CUDA differ in what max and min make of NaN, so kernels are compared on finite inputs.\n"
        f"DOMAIN = {tuple(domains)!r}\n\n\ndef get_inputs():\n    return [\n{body}    ]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def module_source(name: str, c_code: str, parameters: tuple[Parameter, ...]) -> str:
    """The source of a module of this name that calls a kernel in C, with the constants and functions that it needs."""
    order = [each for each, _ in _c_parameters(c_code)]
    written, _ = _uses(c_code[c_code.index("{") :], set(order))
    inputs = [each.name for each in parameters if not each.is_output]
    outputs = [each for each in parameters if each.is_output]
    signature = ", ".join(f"in_{each}" for each in inputs)
    lines = [f"        tensors = {{{', '.join(f'{each!r}: in_{each}.contiguous()' for each in inputs)}}}"]
    for parameter in parameters:
        if not parameter.is_output and parameter.name in written:
            lines.append(
                f"        tensors[{parameter.name!r}] = tensors[{parameter.name!r}].clone()  # it is written to"
            )
    lines.append("        floats = next((x.dtype for x in tensors.values() if x.is_floating_point()), torch.float32)")
    for each in outputs:
        dtype = "floats" if each.dtype == "float32" else f"torch.{each.dtype}"
        lines.append(f"        tensors[{each.name!r}] = torch.empty({each.shape!r}, dtype={dtype})")
    lines += [
        "        for name, shape in SHAPES.items():",
        "            if tuple(tensors[name].shape) != shape:",
        '                raise ValueError(f"the kernel takes {name} of shape {shape} only")',
        "        library(floats).default_function_kernel(*(tensors[name].data_ptr() for name in ORDER))",
        f"        return {', '.join(f'tensors[{each.name!r}]' for each in outputs)}",
    ]
    plain = tuple((each.name, each.dtype, each.shape, each.is_output) for each in parameters)
    rows = "".join(f"    {row!r},\n" for row in plain)
    return (
        f"PARAMETERS = (  # name, dtype, shape, whether it is an output\n{rows})\n"
        f"SHAPES = {{name: shape for name, _, shape, is_output in PARAMETERS if not is_output}}\n"
        f"ORDER = {order!r}\n\n{_c_constant(c_code)}\n{_BUILD}\n\n"
        f"class {name}(nn.Module):\n"
        f'    """Calls the kernel."""\n\n'
        f"    def forward(self, {signature}):\n" + "\n".join(lines) + "\n"
    )


def _c_constant(c_code: str) -> str:
    code = c_code.replace("\r\n", "\n").replace("\r", "\n").strip() + "\n"
    plain = f'{CONSTANT} = r"""\n{code}"""\n'
    try:
        if ast.literal_eval(syntax.parse(plain).body[0].value) == f"\n{code}":  # type: ignore[attr-defined]
            return plain
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return f"{CONSTANT} = {code!r}\n"


_IMPORTS = """\
import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

"""

_BUILD = r'''
PRELUDE = """
#include <cmath>
#include <cstdint>
using namespace std;
template <class A, class B> static inline auto tvm_max(A a, B b) { return a > b ? a : b; }
template <class A, class B> static inline auto tvm_min(A a, B b) { return a < b ? a : b; }
#define max tvm_max
#define min tvm_min
extern "C" {
"""


def in_double(code):
    """The same kernel with double in place of float, but where bits are taken for a float."""
    code = re.sub(r"(?<!\*\()\bfloat\b", "double", code)
    return re.sub(r"\b(?!if\b|sizeof\b)(\w+)f\(", r"\1(", code)


@functools.cache
def library(dtype):
    """The kernel as a library, for tensors of this type: float32 or float64."""
    code = in_double(C_KERNEL) if dtype == torch.float64 else C_KERNEL
    # Large arrays of the function would not fit the stack.
    code = re.sub(r"(?m)^  (\w+ \w+\[\d{4,}\];)", r"  static \1", code)
    folder = Path(tempfile.mkdtemp(prefix="tvm_kernel_"))
    (folder / "kernel.cpp").write_text(PRELUDE + code + "\n}\n")
    openmp = [str(path) for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))[:1]]
    command = ["g++", "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC", "-w"]
    command += ["-o", str(folder / "kernel.so"), str(folder / "kernel.cpp"), "-Wl,--as-needed", *openmp]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"g++ failed:\n{done.stderr}")
    loaded = ctypes.CDLL(str(folder / "kernel.so"))
    loaded.default_function_kernel.argtypes = [ctypes.c_void_p] * len(ORDER)
    loaded.default_function_kernel.restype = None
    return loaded
'''

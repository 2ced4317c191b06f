"""The result of the codegen package: what TorchInductor generated for an op, read from untrusted JSON."""

import json
from dataclasses import dataclass
from typing import Any

from agents.builtin.errors import CodegenFailed

MAX_TEXT = 2_000_000  # characters of one generated module
MAX_TENSORS = 2048


@dataclass(frozen=True)
class Input:
    """One flat argument of the generated `call`; `kind` is parameter, buffer, constant_tensor, argument or scalar."""

    kind: str
    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    base64: str
    value: bool | int | float | str | None


@dataclass(frozen=True)
class Output:
    """One leaf of the result; `kind` is computed (by the kernels), input (one of them itself) or view_of_input."""

    kind: str
    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Generated:
    """A module that TorchInductor generated with one set of options.

    `arguments` and `result` are trees: `["leaf"]`, `["tuple"|"list", [trees]]`, `["dict", [keys], [trees]]`.

    Attributes:
        torch: torch's version.
        text: the source of the module.
        inputs: the arguments of its `call`, in order.
        outputs: the leaves of the result, in order.
        arguments: how the arguments of the op's `forward` are made of tensors and scalars.
        result: how the op's result is made of the outputs.
        training: the mode in which the op was captured.
        vector_bytes: width of the vectors in the kernels; 0: they use none.
        threads: the number of threads that the kernels are made for.
    """

    torch: str
    text: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    arguments: Any
    result: Any
    training: bool
    vector_bytes: int
    threads: int


def read_generated(stdout: bytes) -> Generated:
    """Read the output of the codegen package.

    Raises:
        CodegenFailed: it reports a failure, or has another form.
    """
    try:
        data = json.loads(stdout)
        if not data["ok"]:
            raise CodegenFailed(_short_text(data["stage"]), str(data["error"])[:2000])
        inputs = tuple(_input(item) for item in _items(data["inputs"]))
        return Generated(
            torch=_short_text(data["torch"]),
            text=_text(data["text"]),
            inputs=inputs,
            outputs=tuple(_output(item, len(inputs)) for item in _items(data["outputs"])),
            arguments=_tree(data["arguments"]),
            result=_tree(data["result"]),
            training=bool(data["training"]),
            vector_bytes=_one_of(int(data["vector_bytes"]), (0, 16, 32, 64)),
            threads=max(1, min(int(data["threads"]), 1024)),
        )
    except CodegenFailed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise CodegenFailed("sandbox", f"unreadable result: {type(error).__name__}: {str(error)[:200]}") from error


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        raise ValueError("expected a list of bounded length")
    return value


def _short_text(value: Any) -> str:
    text = str(value)[:80]
    if not text.isprintable():
        raise ValueError("a word with unprintable characters")
    return text


def _one_of(value: int, known: tuple[int, ...]) -> int:
    if value not in known:
        raise ValueError(f"{value} is not one of {known}")
    return value


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(int(item) for item in _items(value or []))


def _text(value: Any) -> str:
    text = str(value)
    if len(text) > MAX_TEXT:
        raise CodegenFailed("lower", f"the generated module is larger than {MAX_TEXT} characters")
    return text


def _input(item: Any) -> Input:
    value = item.get("value")
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise ValueError("a scalar argument that is no scalar")
    dtype = str(item.get("dtype", ""))
    name = str(item.get("name", ""))
    if (dtype and not dtype.isidentifier()) or (
        name and not all(part.isidentifier() or part.isdigit() for part in name.split("."))
    ):
        raise ValueError("a name that is no name")
    return Input(
        kind=_short_text(item["kind"]),
        name=name,
        shape=_integers(item.get("shape")),
        stride=_integers(item.get("stride")),
        dtype=dtype,
        base64="".join(ch for ch in str(item.get("base64", "")) if ch.isalnum() or ch in "+/="),
        value=value,
    )


def _output(item: Any, inputs: int) -> Output:
    index = int(item.get("index", -1))
    if item["kind"] != "computed" and not 0 <= index < inputs:
        raise ValueError("an output that refers to no input")
    return Output(
        kind=_short_text(item["kind"]),
        index=index,
        shape=_integers(item.get("shape")),
        stride=_integers(item.get("stride")),
        offset=int(item.get("offset", 0)),
    )


def _tree(value: Any) -> Any:
    kind = value[0]
    if kind == "leaf":
        return ["leaf"]
    if kind in ("tuple", "list"):
        return [kind, [_tree(child) for child in _items(value[1])]]
    if kind == "dict":
        keys = [key if isinstance(key, int) else str(key) for key in _items(value[1])]
        return ["dict", keys, [_tree(child) for child in _items(value[2])]]
    raise ValueError(f"unknown container {kind!r}"[:80])

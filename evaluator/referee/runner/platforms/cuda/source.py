"""CUDA C++ as text: rewritten into C++ that a host's compiler takes, and reduced to what a GPU runs.

A tokenizer of its own reads the text, because launches and declarations hold nested brackets, strings and comments that
no pattern matches. What is rewritten stays in its line, so that every message names the candidate's own line.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+|\\\n)
    | (?P<line>\n)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    | (?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z]|[0-9a-zA-Z_.])*)
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<sign><<<|::|->|[^\w\s])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
_MAX_CHARACTERS = 2_000_000

_OF_THE_EMULATION = re.compile(
    r'[<"](?:cuda(?:_runtime(?:_api)?|_fp16|_bf16|_pipeline)?|cooperative_groups(?:/reduce)?|mma|math_constants'
    r"|device_launch_parameters|device_functions|vector_types|cuda_runtime|ATen/cuda/\w+|c10/cuda/\w+|torch/cuda)"
    r'(?:\.(?:h|hpp|cuh))?[>"]'
)
# What the emulation has nothing for. A GPU's compiler is needed to know more.
_NOT_EMULATED = {
    "asm": "inline PTX",
    "__asm__": "inline PTX",
    "__asm": "inline PTX",
    "wgmma": "wgmma",
    "cp_async_bulk": "TMA",
    "CUtensorMap": "TMA",
    "cuTensorMapEncodeTiled": "TMA",
    "this_grid": "a barrier of the whole grid",
    "this_cluster": "thread block clusters",
    "cudaLaunchCooperativeKernel": "a cooperative launch",
    "cudaLaunchKernelEx": "thread block clusters",
    "cub": "the library CUB",
    "thrust": "the library Thrust",
    "cutlass": "the library CUTLASS",
    "cublasCreate_v2": "cuBLAS",
    "cublasSgemm": "cuBLAS",
    "curand_init": "cuRAND",
    "tex2D": "textures",
    "cudaTextureObject_t": "textures",
}
# Words by which a source would tell the emulation from a GPU, or switch its checks off.
_FORBIDDEN = re.compile(
    r"^(?:cuh|cuh_\w+|CUH_\w+|__tsan_\w+|__asan_\w+|__sanitizer_\w+|__SANITIZE_\w+|no_sanitize\w*|__no_sanitize\w*"
    r"|disable_sanitizer_instrumentation|no_address_safety_analysis|__attribute__|__has_feature|__x86_64__|__linux__"
    r"|__unix__|__GNUC__|__GLIBC__|__builtin_ia32\w*|syscall|fork|vfork|clone|system|exec[lv]\w*|posix_spawn\w*|popen"
    r"|dlopen|dlsym|ptrace|process_vm_\w+|_exit|_Exit|quick_exit|longjmp|fopen|freopen|fdopen|openat|[io]?fstream|mmap"
    r"|mprotect)$"
)
_HOST_ONLY = frozenset(
    (
        "main", "PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_CHECK", "AT_ASSERTM", "cudaStream_t",
        "cudaMalloc", "cudaGetLastError",
    )
)  # fmt: skip
_HOST_NAMESPACES = frozenset(("torch", "at", "c10", "pybind11", "py", "std"))


class SourceError(ValueError):
    """The source cannot be read; the text says where and why."""


@dataclass(frozen=True)
class Token:
    """A piece of text and the line that it begins in. `kind` is a name of the tokenizer's, or `directive`."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Remark:
    """Something about a line of a source."""

    line: int
    text: str


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function: its name, and how many template parameters without a default it has."""

    name: str
    parameters: int
    template: bool


@dataclass
class Rewritten:
    """What a source has become.

    Attributes:
        text: C++ for the host's compiler; line by line the source.
        kernels: its kernels by name.
        variables: variables of the device at file scope, by name.
        launches: how many launches it holds.
        unnamed: launches that do not name their kernel with all template arguments, and why.
        not_emulated: what the emulation cannot run.
        forbidden: words that a kernel has no use for, but one that hides something has.
    """

    text: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    launches: int = 0
    unnamed: list[Remark] = field(default_factory=list)
    not_emulated: list[Remark] = field(default_factory=list)
    forbidden: list[Remark] = field(default_factory=list)


def tokens_of(source: str) -> list[Token]:
    """The source cut into tokens; their texts together are the source.

    Raises:
        SourceError: it is no C++ at some place, or too long.
    """
    if len(source) > _MAX_CHARACTERS:
        raise SourceError(f"the source has more than {_MAX_CHARACTERS:,} characters")
    found: list[Token] = []
    at, line, begins = 0, 1, True
    while at < len(source):
        if begins and source[at] == "#":
            end = _end_of_directive(source, at)
            found.append(Token("directive", source[at:end], line))
        else:
            match = _TOKEN.match(source, at)
            if match is None:
                raise SourceError(f"line {line}: {source[at : at + 20]!r} is no C++")
            kind = match.lastgroup or "sign"
            found.append(Token("raw" if kind == "mark" else kind, match.group(), line))
            end = match.end()
        text = source[at:end]
        line += text.count("\n")
        if found[-1].kind not in ("space", "comment"):
            begins = found[-1].kind == "line"
        at = end
    return found


def _end_of_directive(source: str, at: int) -> int:
    end = at
    while end < len(source) and source[end] != "\n":
        if source.startswith("\\\n", end):
            end += 2
        elif source.startswith("//", end):
            end = source.find("\n", end) if "\n" in source[end:] else len(source)
        elif source.startswith("/*", end):
            close = source.find("*/", end)
            end = len(source) if close < 0 else close + 2
        else:
            end += 1
    return end


def rewrite(source: str, number: int = 0) -> Rewritten:
    """The source as C++ for the host: launches, shared memory and includes of CUDA's rewritten.

    Args:
        source: CUDA C++.
        number: tells the sources of one candidate apart.

    Raises:
        SourceError: it cannot be read.
    """
    tokens = tokens_of(source)
    result = Rewritten("")
    _survey(tokens, result)
    texts = [token.text for token in tokens]
    depth, shared = 0, 0
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "directive":
            texts[index] = _directive(token)
        elif token.kind == "sign" and token.text in "{}":
            depth += 1 if token.text == "{" else -1
        elif token.text == "__shared__" and token.kind == "word":
            index, shared = _shared(tokens, texts, index, depth, number, shared)
        elif token.text == "<<<":
            _launch(tokens, texts, index, result)
        index += 1
    result.text = "".join(texts)
    return result


def _survey(tokens: Sequence[Token], result: Rewritten) -> None:
    words = [index for index, token in enumerate(tokens) if token.kind == "word"]
    for index in words:
        token = tokens[index]
        if token.text in _NOT_EMULATED:
            result.not_emulated.append(Remark(token.line, f"{token.text}: {_NOT_EMULATED[token.text]}"))
        if _FORBIDDEN.match(token.text):
            result.forbidden.append(Remark(token.line, token.text))
        if token.text == "__global__":
            _note_kernel(tokens, index, result)
        if token.text in ("__constant__", "__device__"):
            _note_variable(tokens, index, result)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        halves = token.text == "\\\n" and before and after and before.kind == after.kind == "word"
        if halves or (token.text == "%" and after and after.text == ":"):  # `%:` is another spelling of #
            result.forbidden.append(Remark(token.line, "a word or a sign in disguise"))
        if token.kind != "directive":
            continue
        if re.search(r"\w\\\n\w", token.text):
            result.forbidden.append(Remark(token.line, token.text.strip()[:60]))
        if re.match(r"#\s*include", token.text) and re.search(
            r"[<\"](?:cub|thrust|cutlass|cute|curand\w*)[/.]", token.text
        ):
            result.not_emulated.append(Remark(token.line, token.text.strip()))
        if re.match(r"#\s*(?:pragma\s+GCC|line)", token.text):
            result.forbidden.append(Remark(token.line, token.text.strip()[:60]))
        for word in re.findall(r"[A-Za-z_]\w*", token.text):
            if _FORBIDDEN.match(word):
                result.forbidden.append(Remark(token.line, word))
            elif word in ("asm", "__asm__") or (word in _NOT_EMULATED and word not in ("cub", "thrust", "cutlass")):
                result.not_emulated.append(Remark(token.line, f"{word}: {_NOT_EMULATED[word]}"))


def _note_kernel(tokens: Sequence[Token], at: int, result: Rewritten) -> None:
    name, index = "", at + 1
    while index < len(tokens):
        token = tokens[index]
        if token.text in ("__launch_bounds__", "__cluster_dims__", "alignas", "__align__"):
            index = _matching(tokens, _next(tokens, index + 1)) + 1
            continue
        if token.text == "(":
            break
        if token.kind == "word":
            name = token.text
        index += 1
    before = _previous(tokens, at - 1)
    while (
        before >= 0 and tokens[before].kind == "word" and tokens[before].text in ("static", "inline", "extern", "void")
    ):
        before = _previous(tokens, before - 1)
    count, template = 0, False
    if before >= 0 and tokens[before].text == ">":
        opening = _opening_angle(tokens, before)
        head = _previous(tokens, opening - 1) if opening >= 0 else -1
        if head >= 0 and tokens[head].text == "template":
            template = True
            parts = _split(tokens[opening + 1 : before], ",")
            count = sum(1 for part in parts if not any(token.text == "=" for token in part))
    if name:
        result.kernels[name] = Kernel(name, count, template)


def _note_variable(tokens: Sequence[Token], at: int, result: Rewritten) -> None:
    """Note the variables of a declaration, with their named namespaces; functions, types and templates are none."""
    before = _previous(tokens, at - 1)
    while before >= 0 and tokens[before].text in ("static", "inline", "extern", "constexpr", "const"):
        before = _previous(tokens, before - 1)
    if before >= 0 and tokens[before].text == ">":  # of `template <…>`
        return
    names: list[str] = []
    index, name = at + 1, ""
    while index < len(tokens) and tokens[index].text != ";":
        token = tokens[index]
        if token.text in ("operator", "(") or (token.text in ("struct", "class", "union", "enum") and not name):
            return
        if token.text in ("[", "{", "<"):
            close = _closing_angle(tokens, index) if token.text == "<" else _matching(tokens, index)
            index = max(close, index) + 1
            continue
        if token.text == "=":
            names.append(name)
            index = _end_of_declarator(tokens, index)
            name = ""
            continue
        if token.text == ",":
            names.append(name)
            name = ""
        if token.kind == "word":
            name = token.text
        index += 1
    within = _namespaces(tokens, at)
    for each in (*names, name):
        known = "::".join((*within, each))
        if each and known not in result.variables:
            result.variables.append(known)


def _end_of_declarator(tokens: Sequence[Token], index: int) -> int:
    """Where an initializer ends: at a comma or semicolon outside of all brackets."""
    while index < len(tokens) and tokens[index].text not in (",", ";"):
        index = _matching(tokens, index) + 1 if tokens[index].text in _OPEN else index + 1
    return index


def _closing_angle(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for index in range(at, len(tokens)):
        depth += {"<": 1, ">": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    return at


def _namespaces(tokens: Sequence[Token], at: int) -> list[str]:
    """The named namespaces that a place lies in, the outermost first."""
    open_ones: list[str] = []
    words: list[str] = []
    for token in tokens[:at]:
        if token.text == "{":
            named = words[-2:-1] == ["namespace"] or words[-3:-1] == ["inline", "namespace"]
            open_ones.append(words[-1] if named else "")
            words = []
        elif token.text == "}":
            if open_ones:
                open_ones.pop()
            words = []
        elif token.text == ";":
            words = []
        elif token.kind == "word":
            words.append(token.text)
    return [name for name in open_ones if name]


def _directive(token: Token) -> str:
    """A directive, without the includes of CUDA's headers."""
    if re.match(r"#\s*include", token.text) and _OF_THE_EMULATION.search(token.text):
        return "\n" * token.text.count("\n")
    if re.match(r"#\s*pragma\s+unroll", token.text):
        return "\n" * token.text.count("\n")
    if "__shared__" in token.text or "<<<" in token.text:
        raise SourceError(f"line {token.line}: a macro that holds __shared__ or <<< is not understood")
    return token.text


def _launch(tokens: Sequence[Token], texts: list[str], at: int, result: Rewritten) -> None:
    first = last = _previous(tokens, at - 1)
    explicit = 0
    if first >= 0 and tokens[first].text == ">":
        opening = _opening_angle(tokens, first)
        if opening < 0:
            raise SourceError(f"line {tokens[at].line}: a launch of what is no kernel's name")
        explicit = len(_split(tokens[opening + 1 : first], ","))
        first = _previous(tokens, opening - 1)
    if first < 0 or tokens[first].kind != "word":
        raise SourceError(f"line {tokens[at].line}: a launch of what is no kernel's name")
    name = tokens[first].text
    while (colons := _previous(tokens, first - 1)) >= 0 and tokens[colons].text == "::":
        before = _previous(tokens, colons - 1)
        if before < 0 or tokens[before].kind != "word":
            first = colons
            break
        first = before
    end = _closing_launch(tokens, at)
    kernel = result.kernels.get(name)
    if kernel is None:
        head, tail = "cuh::launch_pointer((", "), "
        result.unnamed.append(
            Remark(tokens[at].line, f"{name} is no kernel's name; a pointer to a static one has none")
        )
    elif kernel.template and explicit < kernel.parameters:
        head, tail = "cuh::launch_deduced([=](auto... each) { ", "(each...); }, "
        result.unnamed.append(Remark(tokens[at].line, f"{name} lacks template arguments: write {name}<...><<<...>>>"))
    else:
        head, tail = "cuh::launch<(", ")>("
    texts[first] = f"{head}{texts[first]}"
    texts[last] = f"{texts[last]}{tail}"
    texts[at] = "cuh::Config("
    for index in (end, end + 1, end + 2):
        texts[index] = ""
    texts[end] = "))"
    result.launches += 1


def _closing_launch(tokens: Sequence[Token], at: int) -> int:
    depth, index = 0, at + 1
    while index + 2 < len(tokens):
        text = tokens[index].text
        if text in _OPEN:
            depth += 1
        elif text in _CLOSE:
            depth -= 1
        elif depth == 0 and [token.text for token in tokens[index : index + 3]] == [">", ">", ">"]:
            return index
        if depth < 0 or text == ";":
            break
        index += 1
    raise SourceError(f"line {tokens[at].line}: no >>> for this <<<")


def _shared(tokens: Sequence[Token], texts: list[str], at: int, depth: int, number: int, count: int) -> tuple[int, int]:
    """Rewrite one declaration of shared memory; the index of its semicolon, and how many there have been."""
    end = at
    while end < len(tokens) and tokens[end].text != ";":
        end = _matching(tokens, end) + 1 if tokens[end].text in _OPEN else end + 1
    if end == len(tokens):
        raise SourceError(f"line {tokens[at].line}: no end of this declaration of shared memory")
    first = at
    dynamic = False
    while (before := _previous(tokens, first - 1)) >= 0 and tokens[before].text in (
        "extern",
        "static",
        "volatile",
        ")",
    ):
        if tokens[before].text == ")":  # of an alignment
            opening = _opening(tokens, before)
            word = _previous(tokens, opening - 1)
            if word < 0 or tokens[word].text not in ("alignas", "__align__"):
                break
            before = word
        dynamic = dynamic or tokens[before].text == "extern"
        first = before
    declared = [token for token in tokens[first:end] if token.kind not in ("space", "comment", "line", "directive")]
    kept = _without_specifiers(declared)
    dynamic = dynamic or any(token.text == "extern" for token in declared)
    parts = _split(kept, ",")
    base, made = "", []
    for position, part in enumerate(parts):
        place = _declared_name(part)
        if place is None:
            raise SourceError(f"line {tokens[at].line}: this declaration of shared memory is not understood")
        if any(token.text == "=" for token in part):
            raise SourceError(f"line {tokens[at].line}: shared memory cannot be initialized")
        kind = _spelled(part[:place])
        if position == 0:
            base = kind
        else:
            kind = f"{base.rstrip('*& ')} {kind}"
        sizes, declared_name = _spelled(part[place + 1 :]), part[place].text
        if dynamic and depth == 0:
            made.append(f"static const cuh::DynamicShared<{kind}> {declared_name}")
        elif dynamic:
            made.append(f"{kind}* const {declared_name} = static_cast<{kind}*>(cuh::dynamic_shared())")
        else:
            count += 1
            made.append(
                f"cuh::Same<{kind}{sizes}>& {declared_name} = cuh::shared<{kind}{sizes}, {number * 1000 + count}>()"
            )
    for index in range(first, end):
        texts[index] = "\n" * texts[index].count("\n")
    texts[first] = "; ".join(made) + texts[first]
    return end, count


def _without_specifiers(declared: Sequence[Token]) -> list[Token]:
    kept: list[Token] = []
    index = 0
    while index < len(declared):
        token = declared[index]
        if token.text in ("alignas", "__align__") and index + 1 < len(declared) and declared[index + 1].text == "(":
            index = _matching(declared, index + 1) + 1
            continue
        if token.text not in ("__shared__", "extern", "static"):
            kept.append(token)
        index += 1
    return kept


def _declared_name(part: Sequence[Token]) -> int | None:
    """Where the name of a declarator is: the last word before its sizes."""
    found, depth = None, 0
    for index, token in enumerate(part):
        if token.text in ("[", "="):
            break
        depth += {"<": 1, ">": -1}.get(token.text, 0)
        if token.kind == "word" and depth == 0:
            found = index
    return found


def _spelled(tokens: Sequence[Token]) -> str:
    text = ""
    for token in tokens:
        apart = text and (text[-1].isalnum() or text[-1] == "_") and (token.text[0].isalnum() or token.text[0] == "_")
        text += (" " if apart else "") + token.text
    return text


def _split(tokens: Sequence[Token], sign: str) -> list[list[Token]]:
    """Cut at a sign outside of all brackets; angle brackets count where a word stands before them."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    before = ""
    for token in tokens:
        if token.kind in ("space", "comment", "line"):
            continue
        if token.text in _OPEN:
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
        elif token.text == "<" and depth == 0 and (before[-1:].isalnum() or before[-1:] == "_"):
            angles += 1
        elif token.text == ">" and angles and depth == 0:
            angles -= 1
        if token.text == sign and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
        before = token.text
    return [part for part in parts if part]


def _next(tokens: Sequence[Token], index: int) -> int:
    while index < len(tokens) and tokens[index].kind in ("space", "comment", "line"):
        index += 1
    return index


def _previous(tokens: Sequence[Token], index: int) -> int:
    while index >= 0 and tokens[index].kind in ("space", "comment", "line", "directive"):
        index -= 1
    return index


def _matching(tokens: Sequence[Token], at: int) -> int:
    """The index of the bracket that closes the one at `at`; that of the last token if none does."""
    depth = 0
    for index in range(at, len(tokens)):
        if tokens[index].text in _OPEN and tokens[index].kind == "sign":
            depth += 1
        elif tokens[index].text in _CLOSE and tokens[index].kind == "sign":
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def _opening(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for index in range(at, -1, -1):
        if tokens[index].kind == "sign":
            depth += (tokens[index].text in _CLOSE) - (tokens[index].text in _OPEN)
            if depth == 0:
                return index
    return -1


def _opening_angle(tokens: Sequence[Token], at: int) -> int:
    """The index of the `<` that a `>` closes; -1 if there is none in this statement."""
    depth = round_depth = 0
    for index in range(at, -1, -1):
        text = tokens[index].text
        if text in _CLOSE and tokens[index].kind == "sign":
            round_depth += 1
        elif text in _OPEN and tokens[index].kind == "sign":
            round_depth -= 1
        elif round_depth == 0 and text == ">":
            depth += 1
        elif round_depth == 0 and text == "<":
            depth -= 1
            if depth == 0:
                return index
        if round_depth < 0 or text == ";":
            return -1
    return -1


def device_only(source: str) -> str:
    """The source without what runs on the host: line by line the source, functions of the host left blank.

    Includes are left out, too: whoever compiles it brings what kernels need.

    Raises:
        SourceError: it cannot be read.
    """
    tokens = tokens_of(source)
    texts = [token.text for token in tokens]
    begin = index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "directive" and begin == index:
            if re.match(r"#\s*include", token.text):
                texts[index] = ""
            begin = index = index + 1
        elif (token.kind in ("space", "line", "comment") and begin == index) or (token.text == "}" and begin == index):
            begin = index = index + 1
        elif token.text in ("{", ";") and token.kind == "sign":
            item = tokens[begin : index + 1]
            if token.text == "{" and _is_transparent(item):
                begin = index = index + 1
                continue
            end = index if token.text == ";" else _matching(tokens, index)
            if token.text == "{" and not _is_function(item[:-1]):
                while end < len(tokens) and tokens[end].text != ";":
                    end = _matching(tokens, end) + 1 if tokens[end].text in ("(", "[") else end + 1
            function = token.text == "{" and _is_function(item[:-1])
            if _is_of_the_host(tokens[begin : end + 1], function=function):
                for place in range(begin, min(end + 1, len(tokens))):
                    texts[place] = "\n" * texts[place].count("\n")
            begin = index = end + 1
        elif token.text in ("(", "["):
            index = _matching(tokens, index) + 1
        else:
            index += 1
    return "".join(texts)


def _is_transparent(item: Sequence[Token]) -> bool:
    texts = [token.text for token in item if token.kind not in ("space", "comment", "line", "directive")]
    return (
        texts[:1] == ["namespace"]
        or texts[:2] == ["inline", "namespace"]
        or texts
        in (
            ["extern", '"C"', "{"],
            ["extern", '"C++"', "{"],
        )
    )


def _is_function(head: Sequence[Token]) -> bool:
    """Whether a body follows that ends a definition: a function's, not a type's or an initializer's."""
    depth = 0
    called = named = False  # named: a name such as `operator*=` goes on
    last = ""
    for token in head:
        if token.kind in ("space", "comment", "line", "directive"):
            continue
        named = token.text == "operator" or (named and token.kind == "sign" and token.text != "(")
        if named:
            last = token.text
            continue
        if token.text == "(":
            called = called or (
                depth == 0 and last not in ("alignas", "__align__", "__launch_bounds__", "__attribute__")
            )
            depth += 1
        elif token.text == ")":
            depth -= 1
        elif token.text == "=" and depth == 0:
            return False
        last = token.text
    return called


def _is_of_the_host(item: Sequence[Token], *, function: bool) -> bool:
    """Whether a GPU's compiler has no use for it: functions are the host's unless marked otherwise, or constexpr."""
    words = [token for token in item if token.kind in ("word", "sign")]
    head = {token.text for token in words[: next((i for i, t in enumerate(words) if t.text in "{;"), len(words))]}
    if head & {"__global__", "__device__", "__constant__"}:
        return False
    if function and "constexpr" not in head:
        return True
    texts = {token.text for token in words}
    named = {
        name.text
        for before, name, after in zip([None, *words], words, [*words[1:], None], strict=False)
        if (after and after.text == "::") or (before and before.text == "namespace")
    }
    return "<<<" in texts or bool(texts & _HOST_ONLY) or bool(named & _HOST_NAMESPACES)

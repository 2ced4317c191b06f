"""Reads replies: a Coder's candidate (a whole file, or edits of one), and a Judge's advice (JSON).

Replies are untrusted. Python in them is parsed by `ast` and never executed.
"""

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.protocols import JSON
from tasks import syntax

MAX_CANDIDATE_BYTES = 256 * 1024
MAX_REPLY_CHARS = 2 * 1024 * 1024
MAX_FENCES = 256  # fence lines that are read, the last ones of a reply
MAX_BLOCKS = 64  # fenced blocks that are tried
MAX_EDITS = 64
MAX_VARIANTS = 3  # of one idea in a reply
MAX_LABEL_CHARS = 120

# Possessive quantifiers: a line that is no fence is read only once.
_FENCE_LINE = re.compile(r"^[ \t]*+(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\n]*+)$")
_EDIT_LINE = re.compile(
    r"^(?:(?P<search><{5,9}+ ?SEARCH)|(?P<middle>={5,9}+)|(?P<replace>>{5,9}+ ?REPLACE))[ \t]*+(?:\n|\Z)", re.MULTILINE
)

_PYTHON = frozenset({"python", "py", "python3"})
_VARIANT = "variant"  # follows the language in the opening fence of each of several variants
_JSON = frozenset({"json", ""})
_NO_LANGUAGE = frozenset({""})

_TRUNCATED_FILE = " The reply was cut off at the size limit: write a shorter file."
_TRUNCATED_ADVICE = " The reply was cut off at the size limit: answer more briefly."
_EDIT_NOT_CLOSED = "an edit block is not closed; each needs SEARCH, =======, and REPLACE lines"


class ReplyError(ValueError):
    """A reply that does not hold what was asked for. Its text tells the model what to correct."""


class EditError(ValueError):
    """An edit that cannot be applied. Its text tells the model which one and why."""


class Lesson(BaseModel):
    """Something that the Judge learnt and that later rounds of the job should know."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)

    kind: Literal["try", "avoid"]
    text: str = Field(min_length=1, max_length=1000)


class Advice(BaseModel):
    """The Judge's answer: one bottleneck, its evidence, one change to make, lessons, and whether to stop."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)

    bottleneck: str = Field(max_length=4000)
    evidence: tuple[str, ...] = Field(default=(), max_length=20)
    change: str = Field(max_length=8000)
    expected_speedup: float = Field(default=1.0, ge=0.0, le=1e6, allow_inf_nan=False)
    stop: bool = False
    lessons: tuple[Lesson, ...] = Field(default=(), max_length=10)

    def to_json(self) -> dict[str, JSON]:
        """The fields as plain JSON values."""
        lessons: list[JSON] = [lesson.model_dump() for lesson in self.lessons]
        return {**self.model_dump(), "evidence": list(self.evidence), "lessons": lessons}


@dataclass(frozen=True)
class Edit:
    """Replaces the lines `old` by the lines `new`."""

    old: str
    new: str


@dataclass(frozen=True)
class Variant:
    """A candidate in a Coder's reply. `label`: what sets it apart from the others of the reply; empty: it is alone."""

    source: str
    label: str = ""


@dataclass(frozen=True)
class Written:
    """The candidates in a Coder's reply, and what is wrong with those that cannot be used."""

    variants: tuple[Variant, ...]
    problem: str = ""


def candidate_problem(source: str) -> str | None:
    """Why a text cannot be a candidate; None if it can.

    A candidate has at most MAX_CANDIDATE_BYTES of UTF-8, is valid Python, and defines a top-level class `ModelNew`.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return "the file holds characters that UTF-8 cannot encode"
    if size > MAX_CANDIDATE_BYTES:
        return f"the file has {size} bytes; at most {MAX_CANDIDATE_BYTES} are allowed"
    try:
        tree = syntax.parse(source)
    except SyntaxError as error:
        return f"the file is not valid Python: line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the file is not valid Python: {error or type(error).__name__}"
    if not any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        return "the file defines no top-level class named ModelNew"
    return None


def extract_candidates(reply: str, *, base: str | None = None, truncated: bool = False) -> Written:
    """The candidates in a Coder's reply, with `\\n` as line end and one at the end of each file.

    Blocks whose opening fence says "variant" after the language are variants, at most MAX_VARIANTS of them. One that is
    no candidate is left out as long as another one is; files that are equal count once. A reply without such blocks
    holds one candidate (`_only_candidate`).

    Args:
        reply: the text of the reply.
        base: the candidate that the prompt showed; None: edits are not accepted.
        truncated: whether the reply was cut off at the size limit.

    Raises:
        ReplyError: the reply holds no candidate, or too many; the text names the rule that the best attempt breaks.
    """
    text = _normalized(reply)
    hint = _TRUNCATED_FILE if truncated else ""
    found: dict[str, Variant] = {}
    problems: list[str] = []
    number = 0
    for number, (label, bodies) in enumerate(_variant_blocks(text, unclosed=not truncated), start=1):
        if number > MAX_VARIANTS:
            raise ReplyError(
                f"The reply holds more than {MAX_VARIANTS} variants; hand in at most {MAX_VARIANTS}.{hint}"
            )
        problem = "its block is not closed"
        for place, body in enumerate(islice(bodies, MAX_BLOCKS)):
            wrong = candidate_problem(body)
            if wrong is None:
                source = body.rstrip() + "\n"
                found.setdefault(source, Variant(source, label or f"variant {number}"))
                break
            problem = wrong if place == 0 else problem
        else:
            problems.append(f"variant {number}: {problem}")
    if not number:
        return Written((Variant(_only_candidate(text, base, truncated, hint)),))
    if not found:
        raise ReplyError(f"No variant is usable: {'; '.join(problems)}.{hint}")
    variants = tuple(found.values())
    left_out = f"{'; '.join(problems)}.{hint}" if problems else ""
    return Written(variants, left_out)


def extract_candidate(reply: str, *, base: str | None = None, truncated: bool = False) -> str:
    """As `extract_candidates`, for a reply of which one candidate is wanted: the first.

    Raises:
        ReplyError: as there.
    """
    return extract_candidates(reply, base=base, truncated=truncated).variants[0].source


def _only_candidate(text: str, base: str | None, truncated: bool, hint: str) -> str:
    """The candidate in a reply without variants.

    1. A reply with edit blocks is applied to `base`.
    2. Of several fenced blocks the last one that is a candidate counts, because models correct themselves further
       down. Where the file holds fence lines itself, say in a docstring, a block may end at a later fence than the
       first. A block that is not closed counts unless the reply was truncated.
    3. A reply without a fence counts if the whole of it is a candidate.

    Raises:
        ReplyError: it holds none.
    """
    if base is not None and "REPLACE" in text:
        try:
            edits = find_edits(text)
            if edits:
                return _edited(base, edits, hint)
        except EditError as error:
            raise ReplyError(f"The edits cannot be made: {error}.{hint}") from error
    problem = None
    for languages in (_PYTHON, _NO_LANGUAGE):
        for body in islice(_fenced_blocks(text, languages, unclosed=not truncated), MAX_BLOCKS):
            found = candidate_problem(body)
            if found is None:
                return body.rstrip() + "\n"
            if languages is _PYTHON or "ModelNew" in body:
                problem = problem or found
    if not truncated and candidate_problem(text) is None:
        return text.rstrip() + "\n"
    if problem is None:
        raise ReplyError("The reply holds no closed ```python block with the whole file." + hint)
    raise ReplyError(f"The ```python block is not usable: {problem}.{hint}")


def find_edits(reply: str) -> tuple[Edit, ...]:
    """The edit blocks of a reply, in order.

    Raises:
        EditError: a block is not closed, or there are more than MAX_EDITS.
    """
    edits: list[Edit] = []
    search: re.Match[str] | None = None  # the SEARCH line of the open block
    middle: re.Match[str] | None = None  # its ======= line
    for line in _EDIT_LINE.finditer(reply):
        if line["search"] is not None:
            if search is not None:
                raise EditError(_EDIT_NOT_CLOSED)
            if len(edits) == MAX_EDITS:
                raise EditError(f"there are too many edits; at most {MAX_EDITS} are made, give the whole file instead")
            search = line
        elif line["middle"] is not None:
            if search is not None and middle is None:
                middle = line
        elif search is not None and middle is not None:
            edits.append(Edit(reply[search.end() : middle.start()], reply[middle.end() : line.start()]))
            search = middle = None
    if search is not None:
        raise EditError(_EDIT_NOT_CLOSED)
    return tuple(edits)


def apply_edits(source: str, edits: tuple[Edit, ...]) -> str:
    """A file after all edits, each applied to the result of the one before.

    Raises:
        EditError: the lines that an edit replaces are empty, not in the file, or there more than once.
    """
    for number, edit in enumerate(edits, start=1):
        if not edit.old.strip():
            raise EditError(f"edit {number} searches for nothing; quote the lines that it replaces")
        found = source.count(edit.old)
        if found != 1:
            first = edit.old.strip().splitlines()[0][:80]
            what = f"is in the file {found} times" if found else "is not in the file as whole lines"
            raise EditError(f"the text that edit {number} searches for {what} (it begins with {first!r})")
        source = source.replace(edit.old, edit.new)
    return source


def extract_advice(
    reply: str,
    *,
    check_evidence: Callable[[Sequence[str]], str | None] = lambda evidence: None,
    truncated: bool = False,
) -> Advice:
    """The Judge's advice in a reply: the last fenced block that fits the schema, or else the text from the first `{`.

    Args:
        reply: the text of the reply.
        check_evidence: says what is wrong with the lines of `evidence`; None: nothing.
        truncated: whether the reply was cut off at the size limit.

    Raises:
        ReplyError: there is no JSON object, it breaks the schema, or its evidence is wrong; the text names the field.
    """
    text = _normalized(reply)
    bodies = [*islice(_fenced_blocks(text, _JSON), MAX_BLOCKS)]
    if "{" in text:
        bodies.append(text[text.index("{") :])
    problem = "The reply holds no JSON object."
    for body in bodies:
        try:
            value, _ = json.JSONDecoder().raw_decode(body.strip())
        except (ValueError, RecursionError) as error:
            if "{" in body:
                problem = f"The JSON cannot be read: {error}."
            continue
        if not isinstance(value, dict):
            continue
        try:
            advice = Advice.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "object"
            problem = f"The JSON breaks the schema: {where}: {first['msg']}."
            continue
        wrong_evidence = check_evidence(advice.evidence)
        if wrong_evidence is None:
            return advice
        problem = wrong_evidence
    raise ReplyError(problem + (_TRUNCATED_ADVICE if truncated else ""))


def _edited(base: str, edits: tuple[Edit, ...], hint: str) -> str:
    source = apply_edits(_normalized(base), edits)
    problem = candidate_problem(source)
    if problem is not None:
        raise ReplyError(f"After the edits {problem}.{hint}")
    return source.rstrip() + "\n"


def _normalized(reply: str) -> str:
    if len(reply) > MAX_REPLY_CHARS:
        raise ReplyError(f"The reply has {len(reply)} characters; at most {MAX_REPLY_CHARS} are read.")
    return reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def _variant_blocks(text: str, *, unclosed: bool) -> Iterator[tuple[str, Iterator[str]]]:
    """The blocks that are marked as variants, in order: the label, and the bodies with every possible end.

    A block cannot reach beyond the opening fence of the next one.
    """
    lines = text.split("\n")
    fences = _fences(lines)
    marked = [place for place, (_, fence) in enumerate(fences) if _variant_label(fence["info"]) is not None]
    for place, following in pairwise([*marked, len(fences)]):
        start, opening = fences[place]
        last = fences[following][0] if following < len(fences) else len(lines)
        ends = _ends(opening, fences[place + 1 : following])
        if not ends and unclosed and following == len(fences):
            ends = [last]
        yield _variant_label(opening["info"]) or "", _bodies(lines, start, ends)


def _variant_label(info: str) -> str | None:
    """What the opening fence of a variant says of it; None: it is no variant's."""
    language, _, rest = info.strip().partition(" ")
    mark, colon, label = rest.partition(":")
    words = mark.lower().split()
    if (
        language.lower() not in _PYTHON or not words or words[0] != _VARIANT or len(words) > 2
    ):  # "variant 2" is one, too
        return None
    return " ".join(label.split())[:MAX_LABEL_CHARS] if colon else ""


def _fences(lines: Sequence[str]) -> list[tuple[int, re.Match[str]]]:
    """The last MAX_FENCES lines that are fences, with their numbers."""
    return [(number, match) for number, line in enumerate(lines) if (match := _FENCE_LINE.match(line))][-MAX_FENCES:]


def _ends(opening: re.Match[str], fences: Sequence[tuple[int, re.Match[str]]]) -> list[int]:
    """The lines among these fences that can close a block."""
    return [
        number for number, fence in fences if not fence["info"].strip() and fence["mark"].startswith(opening["mark"])
    ]


def _bodies(lines: Sequence[str], start: int, ends: Sequence[int]) -> Iterator[str]:
    """The bodies of a block for each of its possible ends, the shortest first."""
    return (textwrap.dedent("\n".join(lines[start + 1 : end])) for end in ends)


def _fenced_blocks(text: str, languages: frozenset[str], *, unclosed: bool = True) -> Iterator[str]:
    """Bodies of the fenced blocks in these languages: the last opened first, each with every possible end.

    The shortest body of a block comes first. With `unclosed`, a block without an end runs to the end of the text.
    """
    lines = text.split("\n")
    fences = _fences(lines)
    for position in range(len(fences) - 1, -1, -1):
        start, opening = fences[position]
        words = opening["info"].split()
        if (words[0].lower() if words else "") not in languages:
            continue
        ends = _ends(opening, fences[position + 1 :])
        if not ends and unclosed:
            ends = [len(lines)]
        yield from _bodies(lines, start, ends)

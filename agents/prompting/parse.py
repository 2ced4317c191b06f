"""Reading replies: the Python file in a Coder's, the JSON object in a Judge's. Hostile text, parsed by `ast` alone."""

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.prompting.edits import Edit, EditError, apply_edits, find_edits
from agents.protocols import JSON
from tasks import syntax

MAX_CANDIDATE_BYTES = 256 * 1024
MAX_REPLY_CHARS = 2 * 1024 * 1024
MAX_FENCES = 256  # fence marks looked at, from the end
MAX_ATTEMPTS = 64  # blocks tried

# Possessive, so that a line which is no fence is read once.
_FENCE_LINE = re.compile(r"^[ \t]*+(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\n]*+)$")


_PYTHON = frozenset({"python", "py", "python3"})
_JSON = frozenset({"json", ""})
_UNNAMED = frozenset({""})


_CUT = " The reply was cut off at the size limit: write a shorter file."


class ReplyError(ValueError):
    """A reply without what was asked for. Its text tells the model what to mend."""


class Lesson(BaseModel):
    """Something that holds beyond one round of a job."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)

    kind: Literal["try", "avoid"]
    text: str = Field(min_length=1, max_length=1000)


class Advice(BaseModel):
    """The Judge's answer: one bottleneck, what shows it, one change to make, lessons, and whether to stop."""

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


def candidate_problem(source: str) -> str | None:
    """Why this text cannot be a candidate, or None: it must parse, define a class `ModelNew`, and stay within 256 KiB.

    The text is parsed, never executed.
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


def extract_candidate(reply: str, *, base: str | None = None, truncated: bool = False) -> str:
    """The candidate in a Coder's reply, with `\\n` line ends and one at the end.

    A reply with edit blocks (`agents.prompting.edits`) changes `base`, the candidate that the prompt showed.

    Of several fenced blocks the last one that is a candidate counts (a model that corrects itself does so below); a
    fence may be closed by a later mark than the first where the file itself holds fences, say in a docstring. A reply
    without a fence counts if the whole of it is a candidate. An unclosed fence counts unless the reply was cut off.

    Raises:
        ReplyError: there is none; says which rule the best attempt breaks.
    """
    text = _normalised(reply)
    problem = None
    if base is not None and "REPLACE" in text:
        try:
            edits = find_edits(text)
            if edits:
                return _edited(base, edits, truncated)
        except EditError as error:
            raise ReplyError(f"The edits cannot be made: {error}.{_CUT if truncated else ''}") from error
    for languages in (_PYTHON, _UNNAMED):
        for body in islice(_blocks(text, languages, unclosed=not truncated), MAX_ATTEMPTS):
            found = candidate_problem(body)
            if found is None:
                return body.rstrip() + "\n"
            if languages is _PYTHON or "ModelNew" in body:
                problem = problem or found
    if not truncated and candidate_problem(text) is None:
        return text.rstrip() + "\n"
    cut = _CUT if truncated else ""
    if problem is None:
        raise ReplyError("The reply holds no closed ```python block with the whole file." + cut)
    raise ReplyError(f"The ```python block is not usable: {problem}.{cut}")


def _edited(base: str, edits: tuple[Edit, ...], truncated: bool) -> str:
    edited = apply_edits(_normalised(base), edits)
    problem = candidate_problem(edited)
    if problem is not None:
        raise ReplyError(f"After the edits {problem}.{_CUT if truncated else ''}")
    return edited.rstrip() + "\n"


def extract_advice(
    reply: str, *, doubt: Callable[[Sequence[str]], str | None] = lambda evidence: None, truncated: bool = False
) -> Advice:
    """The Judge's JSON in a reply: the last fenced block that fits the schema, or else what starts at the first `{`.

    `doubt` says what is wrong with the lines of evidence, if anything.

    Raises:
        ReplyError: there is no JSON object, or it breaks the schema; names the field.
    """
    text = _normalised(reply)
    bodies = [*islice(_blocks(text, _JSON), MAX_ATTEMPTS)]
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
            doubtful = doubt(advice.evidence)
            if doubtful is None:
                return advice
            problem = doubtful
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "object"
            problem = f"The JSON breaks the schema: {where}: {first['msg']}."
    raise ReplyError(problem + (" The reply was cut off at the size limit: answer more briefly." if truncated else ""))


def _normalised(reply: str) -> str:
    if len(reply) > MAX_REPLY_CHARS:
        raise ReplyError(f"The reply has {len(reply)} characters; at most {MAX_REPLY_CHARS} are read.")
    return reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def _blocks(text: str, languages: frozenset[str], *, unclosed: bool = True) -> Iterator[str]:
    """Bodies of fenced blocks in these languages, the last opened first; each with every possible end, shortest first.

    A block without an end runs to the end of the text, if `unclosed` ones are wanted.
    """
    lines = text.split("\n")
    marks = [(number, match) for number, line in enumerate(lines) if (match := _FENCE_LINE.match(line))][-MAX_FENCES:]
    for position in range(len(marks) - 1, -1, -1):
        start, opening = marks[position]
        words = opening["info"].split()
        if (words[0].lower() if words else "") not in languages:
            continue
        ends = [
            number
            for number, mark in marks[position + 1 :]
            if not mark["info"].strip() and mark["mark"].startswith(opening["mark"])
        ]
        if not ends and unclosed:
            ends = [len(lines)]
        for end in ends:
            yield textwrap.dedent("\n".join(lines[start + 1 : end]))

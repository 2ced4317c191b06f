"""The script of `kernelwright dev llm-server`: which reply or fault a request gets, and in what order."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.prompting.sections import parse
from service.errors import BadRequest

CODER_REQUESTS = ("write", "improve", "repair", "contrast", "tools")
JUDGE_REQUESTS = ("judge-improve", "judge-repair")
MAX_SCRIPT_BYTES = 64 * 1024 * 1024

FaultName = Literal[
    "rate_limit",  # 429, with `retry_after` if given
    "server_error",  # 500
    "overloaded",  # 503, with `retry_after` if given
    "unauthorized",  # 401
    "context",  # 400, context_length_exceeded
    "timeout",  # takes the request and never answers
    "reset",  # closes the connection without an answer
    "garbage",  # 200 and a page that is no JSON
    "drop",  # half of the reply, then the connection breaks
    "stall",  # half of the reply, then silence
    "no_done",  # a stream that ends without finish reason, usage and [DONE], as if it were over
    "drop_late",  # a stream that breaks after the finish reason, before usage and [DONE]
    "refusal",  # the model declines
    "no_usage",  # the reply without usage
    "no_stream_options",  # 400 to a request with `stream_options`; others get the reply
    "no_stream",  # 400 to a request for a stream; others get the reply
]
_STRICT = ConfigDict(extra="forbid", frozen=True)


class When(BaseModel):
    """The requests that an entry is for. A field that is left out matches all requests."""

    model_config = _STRICT

    role: Literal["coder", "judge"] | None = None
    request: Literal["write", "improve", "repair", "contrast", "tools", "judge-improve", "judge-repair"] | None = None
    contains: str | None = None  # anywhere in the user messages


class ScriptedCall(BaseModel):
    """A tool call of a reply. `arguments` is an object, or the text that a model would write."""

    model_config = _STRICT

    name: str = Field(min_length=1)
    arguments: dict[str, Any] | str = Field(default_factory=dict)

    @property
    def arguments_text(self) -> str:
        """The arguments in the protocol's form, JSON as text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ScriptedUsage(BaseModel):
    """The token counts to report. By default a token is counted for every four characters."""

    model_config = _STRICT

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    reasoning_tokens: int | None = Field(None, ge=0)


class Entry(BaseModel):
    """One reply or fault. It is used once, unless `repeat` is true.

    `answer` stands for a text made from the request: `reference` is the op itself as a candidate, `advice` a Judge's
    JSON that ends the job.
    """

    model_config = _STRICT

    text: str | None = None
    text_file: str | None = None  # beside the script
    fence: str | None = None  # put the text (the file's, if there are both) into a fenced block of this language
    answer: Literal["reference", "advice"] | None = None
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "length", "content_filter", "tool_calls"] | None = None
    usage: ScriptedUsage | None = None
    delay_s: float = Field(default=0.0, ge=0, le=3600, allow_inf_nan=False)
    fault: FaultName | None = None
    retry_after: float | str | None = None
    when: When | None = None
    repeat: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> "Entry":
        said = self.text is not None or self.text_file is not None or self.answer is not None
        if not said and not self.tool_calls and not self.reasoning and self.fault is None:
            raise ValueError("an entry needs a text, text_file, answer, reasoning, tool_calls or fault")
        if self.retry_after is not None and self.fault not in ("rate_limit", "overloaded"):
            raise ValueError("retry_after goes with the faults rate_limit and overloaded only")
        return self


class Script(BaseModel):
    """A script. `match` is searched before `replies`; the first entry that fits is used.

    With `by_digest` the choice depends on the request's content and on how often the same request has come, never on
    the order in which different requests arrive. A request gets each fault that fits once, in order, and afterwards
    always the same one of the replies that fit. `key`, if set, is the only key that is accepted.
    """

    model_config = _STRICT

    replies: tuple[Entry, ...] = ()
    match: tuple[Entry, ...] = ()
    by_digest: bool = False
    key: str | None = None

    @model_validator(mode="after")
    def _match_entries_say_when(self) -> "Script":
        if any(entry.when is None for entry in self.match):
            raise ValueError("each entry of match needs a when")
        return self


def builtin_script() -> Script:
    """A script that answers for any op: the Coder gives the reference itself, and the Judge advises to stop."""
    return Script(
        match=(
            Entry(answer="reference", when=When(role="coder"), repeat=True),
            Entry(answer="advice", when=When(role="judge"), repeat=True),
        ),
        replies=(
            Entry(
                text="I answer kernelwright's Coder and Judge requests from a script, and nothing else.", repeat=True
            ),
        ),
        by_digest=True,
    )


def load_script(path: Path) -> Script:
    """Read a script file with the texts of its `text_file` entries.

    Raises:
        BadRequest: the file cannot be read, is no JSON, or breaks the schema. The message names the place.
    """
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise BadRequest(f"{path}: larger than {MAX_SCRIPT_BYTES // 2**20} MiB")
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path}: is no JSON ({error})") from error
    return parse_script(raw, path.parent, str(path))


def parse_script(raw: object, folder: Path, where: str) -> Script:
    """Read a script from JSON.

    Args:
        raw: the JSON value.
        folder: the folder of the files that `text_file` entries name.
        where: the name of the script, for errors.

    Raises:
        BadRequest: the value breaks the schema, or a text cannot be read. The message names the place.
    """
    try:
        script = Script.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BadRequest(f"{where}: {place + ': ' if place else ''}{message[:1].lower()}{message[1:]}") from error
    return script.model_copy(
        update={
            "replies": tuple(_with_text(entry, folder, where) for entry in script.replies),
            "match": tuple(_with_text(entry, folder, where) for entry in script.match),
        }
    )


def fenced(text: str, language: str | None) -> str:
    """The text in a fenced block of the language; without a language, the text itself."""
    return text if language is None else f"```{language}\n{text.rstrip()}\n```\n"


def request_digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 over a request's messages, in hex, which identifies the request."""
    text = json.dumps(list(messages), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def request_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The sections of the last user message that holds a request; empty if there is none."""
    for message in reversed(messages):
        if message.get("role") == "user":
            sections = parse(content_text(message))
            if "request" in sections:
                return sections
    return {}


def content_text(message: Mapping[str, Any]) -> str:
    """A message's content as text. The protocol has two forms of content: a string, and a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def matches(when: When | None, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an entry with this `when` is for a request with these messages."""
    if when is None:
        return True
    request = request_of(messages).get("request", "").strip()
    role = "coder" if request in CODER_REQUESTS else "judge" if request in JUDGE_REQUESTS else None
    if (when.role is not None and when.role != role) or (when.request is not None and when.request != request):
        return False
    asked = "\n".join(content_text(message) for message in messages if message.get("role") == "user")
    return when.contains is None or when.contains in asked


class EntrySelector:
    """Selects an entry of a script for each request. It must not be used by several threads at once."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._used: set[int] = set()  # places in match + replies
        self._seen: dict[str, int] = {}

    def select(self, messages: Sequence[Mapping[str, Any]]) -> Entry | None:
        """The entry for a request; None if the script has none left for it."""
        for entries, first in ((self._script.match, 0), (self._script.replies, len(self._script.match))):
            fitting = [(place, entry) for place, entry in enumerate(entries, first) if matches(entry.when, messages)]
            if self._script.by_digest and fitting:
                return self._by_digest(request_digest(messages), [entry for _, entry in fitting])
            for place, entry in fitting:
                if entry.repeat or place not in self._used:
                    self._used.add(place)
                    return entry
        return None

    def _by_digest(self, digest: str, fitting: Sequence[Entry]) -> Entry:
        seen = self._seen.get(digest, 0)
        self._seen[digest] = seen + 1
        faults = [entry for entry in fitting if entry.fault is not None and not entry.repeat]
        if seen < len(faults):
            return faults[seen]
        lasting = [entry for entry in fitting if entry not in faults] or list(fitting)
        return lasting[int(digest, 16) % len(lasting)]


def _with_text(entry: Entry, folder: Path, where: str) -> Entry:
    if entry.text_file is None:
        return entry
    try:
        body = fenced((folder / entry.text_file).read_text("utf-8"), entry.fence)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"{where}: text_file {entry.text_file}: cannot be read ({reason})") from error
    text = body if entry.text is None else f"{entry.text}\n\n{body}"
    return entry.model_copy(update={"text": text, "text_file": None, "fence": None})

"""Keeps secrets out of transcripts: a model or its server may have sent back what it was called with."""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agents.llm.error_mapping import redact
from db.records import EventRecord
from service.errors import BadRequest
from service.settings import Settings, environment_secrets, read_key
from service.transcripts.calls import CandidateResult, Entry, LinkedCall
from service.transcripts.parts import CallParts, Part


def known_secrets(settings: Settings) -> tuple[str, ...]:
    """The keys and tokens that this process could know: those of its environment and of its key file."""
    own = [] if settings.token is None else [settings.token.get_secret_value()]
    if settings.api_key_file is not None:
        with contextlib.suppress(BadRequest):  # a key that cannot be read cannot be compared with
            own.append(read_key(settings.api_key_file))
    return (*environment_secrets(), *own)


def without_secrets(entries: Iterable[Entry], secrets: Collection[str]) -> list[Entry]:
    """Entries without these secrets and without whatever looks like a key, in all of their texts."""
    return [
        event_without_secrets(entry, secrets)
        if isinstance(entry, EventRecord)
        else _call_without_secrets(entry, secrets)
        for entry in entries
    ]


def parts_without_secrets(found: CallParts, secrets: Collection[str], *, messages: bool = False) -> CallParts:
    """The parts of a call without these secrets and whatever looks like a key; `messages`: with its messages."""

    def cleaned(part: Part) -> Part:
        text = None if part.text is None else redact(part.text, secrets)
        return replace(part, label=redact(part.label, secrets), detail=redact(part.detail, secrets), text=text)

    call = _call_without_secrets(found.call if messages else replace(found.call, messages=()), secrets)
    return CallParts(call, tuple(map(cleaned, found.prompt)), tuple(map(cleaned, found.said)))


def event_without_secrets(event: EventRecord, secrets: Collection[str]) -> EventRecord:
    """An event without these secrets and without whatever looks like a key."""
    return replace(event, data=_clean(event.data, secrets))


def _call_without_secrets(call: LinkedCall, secrets: Collection[str]) -> LinkedCall:
    return replace(
        call,
        messages=tuple(_clean(message, secrets) for message in call.messages),
        reply=redact(call.reply, secrets),
        reasoning=redact(call.reasoning, secrets),
        tool_calls=tuple(_clean(tool_call, secrets) for tool_call in call.tool_calls),
        rejected=None if call.rejected is None else redact(call.rejected, secrets),
        candidate=None if call.candidate is None else _result_without_secrets(call.candidate, secrets),
        candidates=tuple(_result_without_secrets(each, secrets) for each in call.candidates),
    )


def _result_without_secrets(result: CandidateResult, secrets: Collection[str]) -> CandidateResult:
    return replace(result, message=redact(result.message, secrets), label=redact(result.label, secrets))


def _clean(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, Mapping):
        return {key: _clean(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, secrets) for item in value]
    return value

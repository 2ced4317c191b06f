"""Chats for training, one a line, in the form that OpenAI's fine-tuning reads; what else is known is `metadata`."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.llm.ledger import request_digest
from agents.protocols import Tool
from agents.strategies.tool_calls import TOOLS
from db.records import JobRecord
from db.store import Store
from service.errors import BadRequest
from service.jobs.query import get_job
from service.transcripts.calls import Chat, chats_in, read_story
from tasks.outcomes import Verdict, is_ranked

ROLES = ("coder", "judge", "all")
NEAR_FASTEST = 0.95  # of the fastest speedup of a task: as good as it
CHARACTERS_A_TOKEN = 4  # where reasoning is only counted, so that it compares with reasoning that was kept


@dataclass(frozen=True)
class JobChat:
    """A chat and the job that it is from."""

    job: JobRecord
    chat: Chat


@dataclass(frozen=True)
class Wanted:
    """Which chats to keep. `shortest_reasoning` keeps, of the near-fastest of each task, so many."""

    role: str = "coder"
    passed: bool = False
    min_speedup: float | None = None
    shortest_reasoning: int | None = None


def collect(store: Store, job_ids: Iterable[int]) -> Iterator[JobChat]:
    """The chats of these jobs, in order.

    Raises:
        NotInStore: there is no job with one of these ids.
    """
    for job_id in job_ids:
        job = get_job(store, job_id)
        for chat in chats_in(read_story(store, job_id)):
            yield JobChat(job, chat)


def select(chats: Iterable[JobChat], wanted: Wanted) -> list[JobChat]:
    """The chats that are wanted, in the order given.

    Raises:
        BadRequest: the role is unknown.
    """
    if wanted.role not in ROLES:
        raise BadRequest(f"--role {wanted.role[:80]}: choose one of: {', '.join(ROLES)}")
    kept = [each for each in chats if wanted.role in ("all", each.chat.role)]
    if wanted.passed:
        kept = [each for each in kept if each.chat.led is not None and each.chat.led.verdict == Verdict.PASSED]
    if wanted.min_speedup is not None:
        kept = [each for each in kept if reliable_low(each.chat) >= wanted.min_speedup]
    if wanted.shortest_reasoning is not None:
        kept = _shortest(kept, wanted.shortest_reasoning)
    return kept


def reliable_low(chat: Chat) -> float:
    """The lower end of the speedup that a chat led to; 0 where there is none to rely on."""
    led = chat.led
    if led is None or led.verdict != Verdict.PASSED or led.speedup_low is None or not is_ranked(led.tags):
        return 0.0
    return led.speedup_low


def reasoning_length(chat: Chat) -> int:
    """How many characters a model thought before it answered, as far as is known.

    Where no reasoning was kept, its tokens count, else all tokens of the reply.
    """
    if chat.reasoning:
        return len(chat.reasoning)
    tokens = chat.completion_tokens if chat.reasoning_tokens is None else chat.reasoning_tokens
    return tokens * CHARACTERS_A_TOKEN


def openai_line(each: JobChat) -> dict[str, Any]:
    """One chat as an object of OpenAI's chat form: the messages with the reply as the last one, and `metadata`."""
    chat = each.chat
    answer: dict[str, Any] = {"role": "assistant", "content": chat.reply}
    if chat.tool_calls:
        answer["tool_calls"] = [dict(call) for call in chat.tool_calls]
    messages = [*(dict(message) for message in chat.messages), answer]
    offered = {"tools": [_offered(tool) for tool in TOOLS]} if _had_tools(chat) else {}
    return {"messages": messages, **offered, "metadata": _metadata(each.job, chat)}


def write_lines(chats: Sequence[JobChat], out: Path) -> None:
    """Write the chats to a new file, all of them or none.

    Raises:
        BadRequest: there is something of this name, or it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{json_line(each)}\n" for each in chats)
            os.link(name, out)  # unlike a rename, it never replaces a file
        finally:
            with contextlib.suppress(OSError):
                Path(name).unlink()
    except FileExistsError as error:
        raise BadRequest(f"--out {out}: exists; choose another name") from error
    except OSError as error:
        raise BadRequest(f"--out {out}: {error.strerror}; choose another place") from error


def json_line(each: JobChat) -> str:
    """One line of JSON, whatever the texts hold."""
    return json.dumps(openai_line(each), ensure_ascii=True, allow_nan=False, default=str)


def _had_tools(chat: Chat) -> bool:
    """Whether a call offered TOOLS. An earlier version offered others, which are not known any more."""
    return chat.key is not None and chat.key.endswith(f":{request_digest(chat.model, chat.messages, TOOLS)}")


def _offered(tool: Tool) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": about}


def _shortest(chats: Sequence[JobChat], count: int) -> list[JobChat]:
    """Of the chats whose speedup is near the fastest of their task, the `count` with the shortest reasoning."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, each in enumerate(chats):
        if reliable_low(each.chat) > 0:
            job = each.job
            key = (job.task.ref, job.task.source_hash, job.platform, job.sandbox, each.chat.role)
            groups.setdefault(key, []).append(index)
    chosen: set[int] = set()
    for group in groups.values():
        speedups = {index: _speedup(chats[index].chat) for index in group}
        near = [index for index in group if speedups[index] >= NEAR_FASTEST * max(speedups.values())]
        near.sort(key=lambda index: (reasoning_length(chats[index].chat), chats[index].chat.completion_tokens, index))
        chosen.update(near[:count])
    return [chats[index] for index in sorted(chosen)]


def _speedup(chat: Chat) -> float:
    return 0.0 if chat.led is None or chat.led.speedup is None else chat.led.speedup


def _metadata(job: JobRecord, chat: Chat) -> dict[str, Any]:
    led = chat.led
    result: Mapping[str, Any] = {
        "round": None if led is None else led.round,
        "candidate_hash": None if led is None else led.candidate_hash,
        "verdict": None if led is None else led.verdict,
        "code": None if led is None else led.code,
        "speedup": None if led is None else led.speedup,
        "speedup_low": None if led is None else led.speedup_low,
        "speedup_high": None if led is None else led.speedup_high,
        "tags": [] if led is None else list(led.tags),
        "repeat_of_round": None if led is None else led.repeat_of_round,
    }
    return {
        "job": job.id,
        "call": chat.number,
        "task": job.task.ref,
        "source_hash": job.task.source_hash,
        "category": job.task.category,
        "platform": job.platform,
        "sandbox": job.sandbox,
        "strategy": job.strategy,
        "model": chat.model,
        "role": chat.role,
        "purpose": chat.purpose,
        "rejected": chat.rejected,
        "truncated": chat.truncated,
        "prompt_tokens": chat.prompt_tokens,
        "completion_tokens": chat.completion_tokens,
        "reasoning_tokens": chat.reasoning_tokens,
        "reasoning": chat.reasoning,
        "cost_usd": chat.cost_usd,
        **result,
    }

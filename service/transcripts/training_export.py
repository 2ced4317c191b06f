"""Exports calls as training data: one a line in the form of OpenAI's fine-tuning, with further facts in `metadata`."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.llm.ledger import request_digest
from agents.strategies.tool_calls import TOOLS
from db.records import JobRecord
from db.store import Store
from service.errors import BadRequest
from service.jobs.query import get_job
from service.transcripts.calls import LinkedCall, calls_in, read_transcript
from tasks.outcomes import Verdict, is_reliable

ROLES = ("coder", "judge", "all")


@dataclass(frozen=True)
class JobCall:
    """A call and its job."""

    job: JobRecord
    call: LinkedCall


@dataclass(frozen=True)
class CallFilter:
    """Conditions on the calls to export.

    Attributes:
        role: coder, judge or all.
        passed: only calls that led to a candidate that passed.
        min_speedup: only calls that led to a reliable speedup whose interval begins at this or above.
    """

    role: str = "coder"
    passed: bool = False
    min_speedup: float | None = None


def collect_calls(store: Store, job_ids: Iterable[int]) -> Iterator[JobCall]:
    """The calls of these jobs, in order.

    Raises:
        NotInStore: there is no job with one of these ids.
    """
    for job_id in job_ids:
        job = get_job(store, job_id)
        for call in calls_in(read_transcript(store, job_id)):
            yield JobCall(job, call)


def filter_calls(calls: Iterable[JobCall], call_filter: CallFilter) -> list[JobCall]:
    """The calls that match a filter, in the given order.

    Raises:
        BadRequest: the role is unknown.
    """
    if call_filter.role not in ROLES:
        raise BadRequest(f"--role {call_filter.role[:80]}: choose one of: {', '.join(ROLES)}")
    kept = [each for each in calls if call_filter.role in ("all", each.call.role)]
    if call_filter.passed:
        kept = [
            each for each in kept if each.call.candidate is not None and each.call.candidate.verdict == Verdict.PASSED
        ]
    if call_filter.min_speedup is not None:
        kept = [each for each in kept if reliable_low(each.call) >= call_filter.min_speedup]
    return kept


def reliable_low(call: LinkedCall) -> float:
    """The lower end of the speedup that a call led to; 0 without a reliable speedup."""
    candidate = call.candidate
    if (
        candidate is None
        or candidate.verdict != Verdict.PASSED
        or candidate.speedup_low is None
        or not is_reliable(candidate.tags)
    ):
        return 0.0
    return candidate.speedup_low


def openai_line(each: JobCall) -> dict[str, Any]:
    """One call as an object of OpenAI's chat form: the messages with the reply as the last one, and `metadata`."""
    call = each.call
    answer: dict[str, Any] = {"role": "assistant", "content": call.reply}
    if call.tool_calls:
        answer["tool_calls"] = [dict(tool_call) for tool_call in call.tool_calls]
    messages = [*(dict(message) for message in call.messages), answer]
    offered = {"tools": [tool.to_json() for tool in TOOLS]} if _had_tools(call) else {}
    return {"messages": messages, **offered, "metadata": _metadata(each.job, call)}


def write_lines(calls: Sequence[JobCall], out: Path) -> None:
    """Write the calls to a new file, either all of them or none.

    Raises:
        BadRequest: the file exists already, or cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{json_line(each)}\n" for each in calls)
            os.link(name, out)  # unlike a rename, it never replaces a file
        finally:
            with contextlib.suppress(OSError):
                Path(name).unlink()
    except FileExistsError as error:
        raise BadRequest(f"--out {out}: exists; choose another name") from error
    except OSError as error:
        raise BadRequest(f"--out {out}: {error.strerror}; choose another place") from error


def json_line(each: JobCall) -> str:
    """A call as one line of JSON, in ASCII."""
    return json.dumps(openai_line(each), ensure_ascii=True, allow_nan=False, default=str)


def _had_tools(call: LinkedCall) -> bool:
    """Whether a call offered `TOOLS`. Calls of an earlier version offered others, which are not known any more."""
    return call.key is not None and call.key.endswith(f":{request_digest(call.model, call.messages, TOOLS)}")


def _metadata(job: JobRecord, call: LinkedCall) -> dict[str, Any]:
    candidate = call.candidate
    result: Mapping[str, Any] = {
        "round": None if candidate is None else candidate.round,
        "candidate_hash": None if candidate is None else candidate.candidate_hash,
        "verdict": None if candidate is None else candidate.verdict,
        "code": None if candidate is None else candidate.code,
        "speedup": None if candidate is None else candidate.speedup,
        "speedup_low": None if candidate is None else candidate.speedup_low,
        "speedup_high": None if candidate is None else candidate.speedup_high,
        "tags": [] if candidate is None else list(candidate.tags),
        "repeat_of_round": None if candidate is None else candidate.repeat_of_round,
    }
    return {
        "job": job.id,
        "call": call.number,
        "task": job.task.ref,
        "source_hash": job.task.source_hash,
        "category": job.task.category,
        "platform": job.platform,
        "sandbox": job.sandbox,
        "strategy": job.strategy,
        "model": call.model,
        "role": call.role,
        "purpose": call.purpose,
        "rejected": call.rejected,
        "truncated": call.truncated,
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
        "reasoning_tokens": call.reasoning_tokens,
        "reasoning": call.reasoning,
        "cost_usd": call.cost_usd,
        **result,
    }

"""The Coder: asked for a candidate, it gives a whole file, edits of the one it was shown, or the reason for neither."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.llm.ledger import MAX_ASKS, Ledger, again
from agents.prompting.parse import ReplyError, extract_candidate
from agents.protocols import Message


@dataclass(frozen=True)
class Draft:
    """A candidate's source, or None and what was wrong with the last reply."""

    source: str | None
    problem: str = ""


def write_candidate(
    ledger: Ledger, model: str, messages: Sequence[Message], *, base: str | None, purpose: str, round_number: int
) -> Draft:
    """Ask for a candidate; `base` is the one that the prompt shows, which edits change.

    A reply without a usable candidate is asked for again with the reason, MAX_ASKS times in all.

    Raises:
        LLMError: as `Ledger.ask`.
    """
    conversation = list(messages)
    problem = ""
    for attempt in range(MAX_ASKS):
        slot = f"{round_number}/coder/{attempt}"
        reply = ledger.ask(slot, model, conversation, role="coder", purpose=purpose, round_number=round_number)
        try:
            return Draft(extract_candidate(reply.text, base=base, truncated=reply.truncated))
        except ReplyError as error:
            problem = str(error)
            ledger.reject("coder", problem, round_number)
            conversation = again(messages, reply, problem)
    return Draft(None, problem)

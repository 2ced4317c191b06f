"""The Judge: names the one thing that holds a candidate back, and the one change to make."""

from collections.abc import Sequence

from agents.llm.ledger import MAX_ASKS, Ledger, again
from agents.prompting.citations import evidence_check
from agents.prompting.parse import Advice, ReplyError, extract_advice
from agents.protocols import Message, Outcome


def advise(
    ledger: Ledger, model: str, messages: Sequence[Message], outcome: Outcome, *, purpose: str, round_number: int
) -> Advice | None:
    """Ask for advice on the candidate that `outcome` is of.

    JSON that breaks the schema, or cites what the prompt does not hold, is asked for again with the reason, MAX_ASKS
    times in all. None after that: the Coder goes on without advice, for a Judge that stumbles is no reason to end a
    job.

    Raises:
        LLMError: as `Ledger.ask`.
    """
    conversation = list(messages)
    for attempt in range(MAX_ASKS):
        slot = f"{round_number}/judge/{attempt}"
        reply = ledger.ask(slot, model, conversation, role="judge", purpose=purpose, round_number=round_number)
        try:
            return extract_advice(reply.text, doubt=evidence_check(outcome), truncated=reply.truncated)
        except ReplyError as error:
            ledger.reject("judge", str(error), round_number)
            conversation = again(messages, reply, str(error))
    return None

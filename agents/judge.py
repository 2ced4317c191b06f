"""The Judge: names the one thing that holds a candidate back, and the one change to make."""

from collections.abc import Sequence

from agents.asking import MAX_ASKS, Asker, again
from agents.parse import Advice, ReplyError, extract_advice
from agents.ports import Message


def advise(asker: Asker, model: str, messages: Sequence[Message], *, purpose: str, round_number: int) -> Advice | None:
    """Ask for advice; JSON that breaks the schema is asked for again with the reason, MAX_ASKS times in all.

    None after that: the Coder goes on without advice, for a Judge that stumbles is no reason to end a job.

    Raises:
        LLMError: as `Asker.ask`.
    """
    conversation = list(messages)
    for _ in range(MAX_ASKS):
        reply = asker.ask(model, conversation, role="judge", purpose=purpose, round_number=round_number)
        try:
            return extract_advice(reply.text, truncated=reply.truncated)
        except ReplyError as error:
            asker.reject("judge", str(error), round_number)
            conversation = again(messages, reply, str(error))
    return None

"""The Judge: names the one thing that holds a candidate back, and the one change to make."""

from collections.abc import Callable, Sequence

from agents.asking import MAX_ASKS, Asker, again
from agents.parse import Advice, ReplyError, extract_advice
from agents.ports import Message, Outcome

_MIN_QUOTE = 12  # characters; a shorter run of text is found in anything


def advise(
    asker: Asker, model: str, messages: Sequence[Message], outcome: Outcome, *, purpose: str, round_number: int
) -> Advice | None:
    """Ask for advice on the candidate that `outcome` is of.

    JSON that breaks the schema, or cites what the prompt does not hold, is asked for again with the reason, MAX_ASKS
    times in all. None after that: the Coder goes on without advice, for a Judge that stumbles is no reason to end a
    job.

    Raises:
        LLMError: as `Asker.ask`.
    """
    conversation = list(messages)
    for attempt in range(MAX_ASKS):
        slot = f"{round_number}/judge/{attempt}"
        reply = asker.ask(slot, model, conversation, role="judge", purpose=purpose, round_number=round_number)
        try:
            return extract_advice(reply.text, doubt=evidence_check(outcome), truncated=reply.truncated)
        except ReplyError as error:
            asker.reject("judge", str(error), round_number)
            conversation = again(messages, reply, str(error))
    return None


def evidence_check(outcome: Outcome) -> Callable[[Sequence[str]], str | None]:
    """Says what is wrong with lines of evidence: each must name a metric of this outcome, or quote its error or its
    profile; and a candidate that was measured is not judged without any."""
    names = tuple(outcome.metrics)
    said = _squeezed(" ".join((outcome.message, outcome.detail, outcome.profile_text)))

    def founded(text: str) -> bool:
        if any(name in text for name in names):
            return True
        quote = _squeezed(text)
        return bool(quote) and (len(quote) >= _MIN_QUOTE or quote == said) and quote in said

    def doubt(evidence: Sequence[str]) -> str | None:
        if names and not evidence:
            return "The evidence is empty: name at least one figure of `<metrics>`."
        for text in evidence:
            if not founded(text):
                return (
                    f"The evidence {text[:120]!r} names no figure of `<metrics>` by its full name and quotes no line"
                    " of the evaluation or the profile."
                )
        return None

    return doubt


def _squeezed(text: str) -> str:
    return " ".join(text.split()).strip("\"'` ").casefold()

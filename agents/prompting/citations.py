"""Whether what a Judge cites is in what it was shown: a figure by its name, or words of the evaluation or profile."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from agents.prompting.builder import evaluation_text, profile_text
from agents.protocols import Outcome

MAX_LINES = 20  # of evidence, looked at
MAX_LINE_CHARS = 2000
MIN_QUOTE_CHARS = 12  # a shorter run of text is found in anything

_WORD = re.compile(r"\w+")
_PART_OF_NAME = re.compile(r"[\w.]")
_GOES_ON = re.compile(r"\.?\w")  # after a name: it was only the beginning of another; a full stop ends a sentence


def evidence_check(outcome: Outcome) -> Callable[[Sequence[str]], str | None]:
    """Says what is wrong with lines of evidence, None if nothing is.

    Each must name a metric of this outcome by its full name, hold a line of the evaluation as the prompt shows it, or
    quote the message, the detail or the profile; and a candidate that was measured is not judged without any. Takes
    time in proportion to the evidence, of which only the beginning is looked at.
    """
    names = tuple(outcome.metrics)
    evaluation = evaluation_text(outcome)
    lines = tuple(line for line in map(_line, evaluation.split("\n")) if len(line) >= MIN_QUOTE_CHARS or ":" in line)
    shown = json.loads(evaluation)
    texts = [outcome.message, str(shown["detail"]), profile_text(outcome)]
    texts += [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts[:2]]  # as they stand in the evaluation
    said = tuple(filter(None, map(_squeezed, texts)))
    quotes = {quote for text in said for quote in _quotes(text)}

    def founded(text: str) -> bool:
        if any(_names(name, text) for name in names):
            return True
        whole, line = _squeezed(text), _line(text)
        if any(_names(known, line) for known in lines):
            return True
        if whole in said or (len(whole) >= MIN_QUOTE_CHARS and any(whole in each for each in said)):
            return True
        return any(quote in quotes for quote in _quotes(whole))

    def doubt(evidence: Sequence[str]) -> str | None:
        if names and not evidence:
            return "The evidence is empty: name at least one figure of `<metrics>`."
        for text in evidence[:MAX_LINES]:
            if not founded(text[:MAX_LINE_CHARS]):
                return (
                    f"The evidence {text[:120]!r} names no figure of `<metrics>` by its full name and quotes no line"
                    " of the evaluation or the profile."
                )
        return None

    return doubt


def _names(name: str, text: str) -> bool:
    """Whether `text` holds `name` and not only a longer name that it is a part of."""
    start = text.find(name) if name else -1
    while start >= 0:
        before = text[start - 1 : start]
        if not _PART_OF_NAME.match(before) and not _GOES_ON.match(text, start + len(name)):
            return True
        start = text.find(name, start + 1)
    return False


def _quotes(text: str) -> Iterator[str]:
    """From the beginning of each word to the end of the first word with which a quote is long enough.

    Two texts that share whole words of MIN_QUOTE_CHARS or more share one of these.
    """
    words = list(_WORD.finditer(text))
    last = 0
    for word in words:
        while last < len(words) and words[last].end() - word.start() < MIN_QUOTE_CHARS:
            last += 1
        if last == len(words):
            return
        yield text[word.start() : words[last].end()]


def _line(text: str) -> str:
    """A line of JSON however it is quoted: without quotation marks, and without the comma after it."""
    return _squeezed(text.replace('"', "")).rstrip(",")


def _squeezed(text: str) -> str:
    return " ".join(text.split()).strip("\"'` ").casefold()

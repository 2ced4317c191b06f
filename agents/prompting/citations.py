"""Checks that the evidence of a Judge's advice cites what its prompt showed: a metric by its name, or a quote."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from agents.prompting.builder import evaluation_text, profile_text
from agents.protocols import Outcome

MAX_LINES = 20  # lines of evidence that are checked
MAX_LINE_CHARS = 2000
MIN_QUOTE_CHARS = 12  # a shorter quote occurs in any text

_WORD = re.compile(r"\w+")
_NAME_CHARACTER = re.compile(r"[\w.]")
_NAME_CONTINUES = re.compile(r"\.?\w")  # after a name; a full stop alone ends a sentence


def evidence_checker(outcome: Outcome) -> Callable[[Sequence[str]], str | None]:
    """A function that says what is wrong with lines of evidence about a candidate with this outcome; None: nothing.

    Each line must name a metric of `outcome` by its full name, contain a line of the evaluation as the prompt shows it,
    or quote at least MIN_QUOTE_CHARS of the message, the detail or the profile. Advice on an outcome with metrics must
    have at least one line. The check takes time in proportion to the evidence, of which only the first MAX_LINES are
    read.
    """
    metrics = tuple(outcome.metrics)
    evaluation = evaluation_text(outcome)
    lines = map(_normalized_line, evaluation.split("\n"))
    known_lines = tuple(line for line in lines if len(line) >= MIN_QUOTE_CHARS or ":" in line)
    shown = json.loads(evaluation)
    sources = [outcome.message, str(shown.get("detail", "")), profile_text(outcome)]
    sources += [json.dumps(text, ensure_ascii=False)[1:-1] for text in sources[:2]]  # as the evaluation's JSON has them
    texts = tuple(filter(None, map(_normalized, sources)))
    known_quotes = {quote for text in texts for quote in _shortest_quotes(text)}

    def is_supported(evidence: str) -> bool:
        if any(_names(metric, evidence) for metric in metrics):
            return True
        line = _normalized_line(evidence)
        if any(_names(known, line) for known in known_lines):
            return True
        quote = _normalized(evidence)
        if quote in texts or (len(quote) >= MIN_QUOTE_CHARS and any(quote in text for text in texts)):
            return True
        return any(part in known_quotes for part in _shortest_quotes(quote))

    def check(evidence: Sequence[str]) -> str | None:
        if metrics and not evidence:
            return "The evidence is empty: name at least one figure of `<metrics>`."
        for text in evidence[:MAX_LINES]:
            if not is_supported(text[:MAX_LINE_CHARS]):
                return (
                    f"The evidence {text[:120]!r} names no figure of `<metrics>` by its full name and quotes no line"
                    " of the evaluation or the profile."
                )
        return None

    return check


def _names(name: str, text: str) -> bool:
    """Whether `text` holds `name`, and not only as part of a longer name."""
    start = text.find(name) if name else -1
    while start >= 0:
        before = text[start - 1 : start]
        if not _NAME_CHARACTER.match(before) and not _NAME_CONTINUES.match(text, start + len(name)):
            return True
        start = text.find(name, start + 1)
    return False


def _shortest_quotes(text: str) -> Iterator[str]:
    """For each word, the text from its beginning to the end of the first word that makes it long enough for a quote.

    Two texts that share MIN_QUOTE_CHARS or more in whole words share one of these.
    """
    words = list(_WORD.finditer(text))
    last = 0
    for word in words:
        while last < len(words) and words[last].end() - word.start() < MIN_QUOTE_CHARS:
            last += 1
        if last == len(words):
            return
        yield text[word.start() : words[last].end()]


def _normalized_line(text: str) -> str:
    """A line of JSON without quotation marks and without the comma at its end, however it was quoted."""
    return _normalized(text.replace('"', "")).rstrip(",")


def _normalized(text: str) -> str:
    return " ".join(text.split()).strip("\"'` ").casefold()

"""Highlighted source. Characters that hide or reorder text are shown as escapes, so that readers see what runs."""

from functools import lru_cache

from markupsafe import Markup, escape
from pygments import lex
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, Token, _TokenType

from service.views.safe_text import shown

MAX_HIGHLIGHTED_CHARS = 60_000
"""A longer source is not highlighted. The worst input of this length takes the lexer 1.5 s."""

MAX_LINES = 5000
MAX_LINE_CHARS = 2000


def code_lines(source: str, python: bool = True) -> tuple[Markup, ...]:
    """The lines of a source as HTML: at most `MAX_LINES` of `MAX_LINE_CHARS` characters. Python is highlighted."""
    lines = [shown(line, MAX_LINE_CHARS) for line in source.splitlines()[:MAX_LINES]]
    return _highlighted("\n".join(lines)) if python else tuple(escape(line) for line in lines)


def code_line(text: str) -> Markup:
    """One line as HTML, highlighted without its context: a line within a string looks like code."""
    return _highlighted(shown(text, MAX_LINE_CHARS))[0]


@lru_cache(maxsize=4096)
def _highlighted(text: str) -> tuple[Markup, ...]:
    if len(text) > MAX_HIGHLIGHTED_CHARS:
        return tuple(escape(line) for line in text.split("\n"))
    lines: list[list[Markup]] = [[]]
    for token, value in lex(text, PythonLexer(stripnl=False, ensurenl=False)):
        name = _class_of(token)
        for index, piece in enumerate(value.split("\n")):
            if index:
                lines.append([])
            if piece:
                lines[-1].append(Markup('<span class="{}">{}</span>').format(name, piece) if name else escape(piece))
    return tuple(Markup("").join(line) for line in lines)


def _class_of(token: _TokenType) -> str:
    """The CSS class of a token type or of its nearest ancestor that has one."""
    while token not in STANDARD_TYPES and token is not Token:
        token = token.parent or Token
    name = STANDARD_TYPES.get(token, "")
    return f"h-{name}" if name else ""

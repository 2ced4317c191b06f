"""Source as highlighted lines. What hides or reorders text in it is written out, so that one sees what runs."""

from functools import lru_cache

from markupsafe import Markup, escape
from pygments import lex
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, Token, _TokenType

from service.views.safe_text import shown

MAX_HIGHLIGHTED_CHARS = 60_000
"""Past that a source is shown plain: the worst that a lexer can be given takes a second and a half for so many."""

MAX_LINES = 5000
MAX_LINE_CHARS = 2000


def code_lines(source: str) -> tuple[Markup, ...]:
    """Each line of a Python source as HTML; only classes, no styles. Cut past some thousand lines."""
    lines = [shown(line, MAX_LINE_CHARS) for line in source.splitlines()[:MAX_LINES]]
    return _highlighted("\n".join(lines))


def code_line(text: str) -> Markup:
    """One line by itself; what only its neighbours tell (that it stands in a string) is not known here."""
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
    """The short class of a kind of token, the nearest that is known."""
    while token not in STANDARD_TYPES and token is not Token:
        token = token.parent or Token
    name = STANDARD_TYPES.get(token, "")
    return f"h-{name}" if name else ""

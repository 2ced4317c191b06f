"""Templates: their environment, their filters, and the response with a rendered page."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from service.submissions.access import LOCAL, Principal, Role
from service.version import program_version
from service.views.safe_text import one_line, shown
from tasks.outcomes import (
    NO_CANDIDATE,
    NOT_EVALUATED,
    NOT_JUDGED,
    TAGS,
    UNDER_WAY,
    WARNING,
    Clock,
    Verdict,
    clock_of,
    explain,
)
from web.pages.render import source, speedup_bars
from web.pages.render.assets import assets
from web.security.sessions import csrf_token

NAVIGATION = (
    ("/", "Overview"),
    ("/leaderboard", "Leaderboard"),
    ("/submit", "Submit"),
    ("/jobs", "Jobs"),
    ("/tasks", "Tasks"),
    ("/batches", "Batches"),
    ("/models", "Models"),
    ("/devices", "Devices"),
)
MISSING = "–"


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template, which is a whole page or a part of one.

    Args:
        request: The request.
        template: The name of the template.
        status: The status of the response.
        context: The template's variables. The user, permissions, path, query and CSRF token are added.
    """
    deps = request.app.state.dependencies
    principal: Principal | None = getattr(request.state, "principal", None)
    known = principal or (None if deps.login else LOCAL)
    html = (
        environment()
        .get_template(template)
        .render(
            **context,
            principal=known,
            may_submit=known is not None and known.role.includes(Role.SUBMITTER),
            may_operate=known is not None and known.role.includes(Role.OPERATOR),
            login=deps.login,
            path=request.url.path,
            query=dict(request.query_params),
            csrf=csrf_token(request, deps.session_key),
        )
    )
    # Text of the store has no lone surrogates, but an error message may: "replace" keeps the response from failing.
    return HTMLResponse(html.encode("utf-8", "replace"), status_code=status)


@cache
def environment() -> Environment:
    """The templates' environment. All text is made safe to show and escaped."""
    made = Environment(
        loader=PackageLoader("web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
        auto_reload=False,
    )
    made.filters |= {
        "exact": _exact,
        "long": _long,
        "short": _short,
        "breakable": _breakable,
        "figure": figure,
        "latency": latency,
        "times": _times,
        "percent": _percent,
        "dollars": _dollars,
        "moment": _moment,
        "span": _span,
    }
    made.globals |= {
        "asset": assets().url,
        "plotly_styles": assets().plotly_styles,
        "navigation": NAVIGATION,
        "version": program_version(),
        "with_query": _with_query,
        "bar": speedup_bars.bar,
        "bar_width": speedup_bars.WIDTH,
        "code_lines": source.code_lines,
        "known_tags": TAGS,
        "clock_of": clock_of,
        "explain": explain,
        "passed": Verdict.PASSED,
        "no_candidate": NO_CANDIDATE,
        "under_way": UNDER_WAY,
        "not_evaluated": NOT_EVALUATED,
        "not_judged": NOT_JUDGED,
        "warning_tags": WARNING,
    }
    return made


def _with_query(path: str, query: Mapping[str, object], **changes: object) -> Markup:
    """A path with a query after changes to it. Values that are None or empty are left out."""
    values = {key: value for key, value in {**query, **changes}.items() if value not in (None, "")}
    return escape(f"{path}?{urlencode(values, errors='replace')}" if values else path)


def _finalize(value: object) -> object:
    """Make the value of an expression safe to show, before Jinja escapes it."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return shown(value)
    return value


def _exact(text: str) -> Markup:
    """The unchanged text, escaped: for values that a form sends back or that are compared."""
    return escape(text)


def _long(text: str, limit: int = 4000) -> Markup:
    """Text with its line breaks, up to `limit` characters."""
    return escape(shown(text, limit))


def _short(text: object, limit: int = 60) -> str:
    """Text on one line, up to `limit` characters."""
    return one_line(text, limit)


def _breakable(text: object, limit: int = 60) -> Markup:
    """As `short`, where a line may end after a slash, dot, hyphen or underscore rather than inside a word."""
    pieces = re.split(r"(?<=[/._\-:])(?=[^/._\-:])", _short(text, limit))
    return Markup("<wbr>").join(pieces)


def figure(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits. Numbers from 0.001 to a million have no exponent."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        if abs(value) >= 1:
            return f"{value:,.{max(digits - len(str(int(abs(value)))), 0)}f}"
        return f"{value:.{max(digits + 1, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}"


def latency(value_ms: float | None, clock: Clock, digits: int = 3) -> str:
    """A latency in the clock's unit: times with so many significant digits, counts whole."""
    return figure(value_ms, digits) if value_ms is None or not clock.note else clock.figure(value_ms)


def _times(value: float | None) -> str:
    """A speedup."""
    if value is None:
        return MISSING
    return f"{value:.2f}×" if value < 1000 else f"{value:.3g}×"


def _percent(value: float | None) -> str:
    """A fraction as a percentage."""
    if value is not None and value >= 10:
        return "over 999 %"
    return MISSING if value is None else f"{value * 100:.0f} %" if value >= 0.1 else f"{value * 100:.1f} %"


def _dollars(value: float | None) -> str:
    """An amount in dollars."""
    if value is None:
        return MISSING
    return "$0" if value == 0 else f"${value:.2f}" if value >= 1 else f"${value:.4f}"


def _moment(value: datetime | None) -> Markup:
    """A date and time in UTC."""
    if value is None:
        return escape(MISSING)
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M} UTC")


def _span(seconds: float | None) -> str:
    """A duration."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes < 48 * 60 else f"{minutes // 1440} days"

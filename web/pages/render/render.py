"""From a template and its values to an answer."""

from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from service.submissions.access import LOCAL, Principal, Role
from service.version import program_version
from tasks.outcomes import NOT_JUDGED, TAGS, UNRANKED, explain
from web.pages.render import format, source, speedup_bars
from web.pages.render.assets import assets
from web.pages.render.forms import with_query
from web.security.sessions import csrf_token

NAVIGATION = (
    ("/", "Leaderboard"),
    ("/submit", "Submit"),
    ("/jobs", "Jobs"),
    ("/tasks", "Tasks"),
    ("/batches", "Batches"),
    ("/devices", "Devices"),
)


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A whole page, or a part of one where the template says so."""
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
    # What comes from the store was cleaned; a message may come from elsewhere, and an answer is never lost for it.
    return HTMLResponse(html.encode("utf-8", "replace"), status_code=status)


@cache
def environment() -> Environment:
    """The templates; every text is escaped and made safe to look at."""
    made = Environment(
        loader=PackageLoader("web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=format.finalize,
        auto_reload=False,
    )
    made.filters |= {
        "exact": format.exact,
        "long": format.long,
        "short": format.short,
        "figure": format.figure,
        "times": format.times,
        "percent": format.percent,
        "dollars": format.dollars,
        "moment": format.moment,
        "span": format.span,
    }
    made.globals |= {
        "asset": assets().url,
        "plotly_styles": assets().plotly_styles,
        "navigation": NAVIGATION,
        "version": program_version(),
        "with_query": with_query,
        "bar": speedup_bars.bar,
        "bar_width": speedup_bars.WIDTH,
        "code_lines": source.code_lines,
        "known_tags": TAGS,
        "explain": explain,
        "not_judged": NOT_JUDGED,
        "unranked_tags": UNRANKED,
    }
    return made

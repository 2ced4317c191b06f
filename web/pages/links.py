"""Addresses of pages with a changed query."""

from collections.abc import Mapping
from urllib.parse import urlencode

from markupsafe import Markup, escape


def with_query(path: str, query: Mapping[str, object], **changes: object) -> Markup:
    """`path` with the given query after `changes`; what is None or empty is left out."""
    values = {key: value for key, value in {**query, **changes}.items() if value not in (None, "")}
    return escape(f"{path}?{urlencode(values, errors='replace')}" if values else path)

"""Database URLs and errors as text for users, without passwords."""

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

_SECRETS = ("password", "sslpassword")


def displayed_url(url: URL) -> str:
    """The URL with its passwords replaced by asterisks."""
    hidden = {name: "***" for name in _SECRETS if name in url.query}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def error_text(error: DBAPIError) -> str:
    """The database's message on one line. PostgreSQL's messages have several."""
    return " ".join(str(error.orig or error).split())

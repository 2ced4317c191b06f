"""A database's name and its errors as people may see them."""

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

_SECRETS = ("password", "sslpassword")


def shown(url: URL) -> str:
    """The URL without any password."""
    hidden = {name: "***" for name in _SECRETS if name in url.query}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def one_line(error: DBAPIError) -> str:
    """What the database said, which PostgreSQL does in several lines."""
    return " ".join(str(error.orig or error).split())

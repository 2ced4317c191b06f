"""Column types and cleaning that keep values the same on every database."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from db.records import JsonValue
from tasks.text import clean_text


def utc_now() -> datetime:
    """The present moment, timezone-aware in UTC."""
    return datetime.now(UTC)


def clean_json(value: JsonValue) -> JsonValue:
    """`value` as strict JSON: texts cleaned, NaN and infinities as null, only plain dicts and lists.

    Raises:
        TypeError: the value holds something that JSON has no form for; the text names its type.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [clean_json(item) for item in items]
    raise TypeError(f"{type(value).__name__} has no JSON form; store a plain value instead")


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC: refuses naive datetimes, and returns aware ones also where the database forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database.

        Raises:
            ValueError: the datetime is naive.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}; use db.types.utc_now()")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class CleanText(TypeDecorator[str]):
    """Text of any length, cleaned on its way in."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else clean_text(value)


class PlainText(CleanText):
    """Cleaned text that sorts by code points on every database, whatever language PostgreSQL was set up for."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """The column's type."""
        return Text(collation="C" if dialect.name == "postgresql" else None)  # SQLite knows no other order

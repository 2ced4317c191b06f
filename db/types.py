"""Column types, and cleaning of values, that make all databases store the same values."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from db.records import JsonValue
from tasks.text import clean_text


def utc_now() -> datetime:
    """The current time in UTC, timezone-aware."""
    return datetime.now(UTC)


def clean_json(value: JsonValue) -> JsonValue:
    """Convert a value to strict JSON: cleaned text, null for NaN and infinities, only dicts and lists.

    Raises:
        TypeError: The value holds an object that JSON cannot represent. The message names its type.
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
    """A datetime in UTC. Naive datetimes are refused; aware ones are returned even by databases that drop the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC.

        Raises:
            ValueError: The datetime is naive.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}; use db.types.utc_now()")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class CleanText(TypeDecorator[str]):
    """Text of any length, cleaned when it is stored and when it is compared with what is stored.

    So no text that a client sends makes a statement fail, whichever way it takes: PostgreSQL refuses a NUL even in a
    comparison.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Clean the text."""
        return None if value is None else clean_text(value)


class ShortText(CleanText):
    """Cleaned text of a limited length: names, ids and hashes."""

    impl = String
    cache_ok = True


class PlainText(CleanText):
    """Cleaned text that is sorted by code points on every database, regardless of PostgreSQL's locale."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Text with the collation C on PostgreSQL."""
        return Text(collation="C" if dialect.name == "postgresql" else None)  # SQLite's default

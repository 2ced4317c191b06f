"""How values are written on pages: figures with their digits, hostile text made visible, moments."""

from datetime import UTC, datetime

from markupsafe import Markup, escape

from service.views.safe_text import one_line, shown

MISSING = "–"


def finalize(value: object) -> object:
    """Every expression of a template passes here: text becomes safe to look at before it is escaped."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return shown(value)
    return value


def exact(text: str) -> Markup:
    """Escaped but otherwise unchanged: for what is sent back or compared."""
    return escape(text)


def long(text: str, limit: int = 4000) -> Markup:
    """Up to some thousand characters of text with its line breaks."""
    return escape(shown(text, limit))


def short(text: object, limit: int = 60) -> str:
    """A name within a table."""
    return one_line(text, limit)


def figure(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, never in powers of ten between a thousandth and a million."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
        return f"{value:,.{max(digits - whole, 0) if abs(value) >= 1 else digits + 1}f}"
    return f"{value:.{digits - 1}e}"


def times(value: float | None) -> str:
    """A speedup."""
    if value is None:
        return MISSING
    return f"{value:.2f}×" if value < 1000 else f"{value:.3g}×"


def percent(value: float | None) -> str:
    """A fraction as a percentage."""
    if value is not None and value >= 10:
        return "over 999 %"
    return MISSING if value is None else f"{value * 100:.0f} %" if value >= 0.1 else f"{value * 100:.1f} %"


def dollars(value: float | None) -> str:
    """An amount of money."""
    if value is None:
        return MISSING
    return "$0" if value == 0 else f"${value:.2f}" if value >= 1 else f"${value:.4f}"


def moment(value: datetime | None) -> Markup:
    """A moment in UTC."""
    if value is None:
        return escape(MISSING)
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M} UTC")


def span(seconds: float | None) -> str:
    """A length of time."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes < 48 * 60 else f"{minutes // 1440} days"

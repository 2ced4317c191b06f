"""Takes keys out of texts that come back from providers, before they are shown or stored."""

import re
from collections.abc import Collection

REMOVED = "[removed]"
MIN_SECRET_CHARS = 6  # shorter ones would blot out ordinary words

_PATTERNS = (
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|r8|nvapi)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}"), REMOVED),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{6,}"), rf"\1 {REMOVED}"),
    (
        re.compile(
            r"(?i)\b((?:api[-_ ]?key|access[-_ ]?token|secret|authorization|password)(?: provided)?['\"]?\s*[:=]\s*)"
            r"['\"]?[^\s'\",}]+"
        ),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(?i)([?&](?:key|api[-_]?key|token)=)[^&\s]+"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(https?://)[^/\s@]+@"), rf"\1{REMOVED}@"),
)


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """`text` without the given secrets and without anything that looks like a key."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, REMOVED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

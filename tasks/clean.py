"""The one rule for text from outside that is kept: what no database and no HTTP client takes is replaced."""


def clean_text(text: str) -> str:
    """`text` without what a database refuses (NUL, lone surrogates): each becomes U+FFFD, a surrogate three of them.

    Text comes from hostile code and hostile models. PostgreSQL rejects a whole row for one NUL, and no encoding carries
    a lone surrogate. What is cleaned once stays as it is, so that what was stored equals what was worked with.
    """
    return text.replace("\x00", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")

"""Long texts in prompts and in what tools return."""


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text longer than `limit`: the first and last lines of an error say most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"

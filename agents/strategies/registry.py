"""The strategies by name. Each is imported when it is opened, because importing LangGraph takes a second."""

from collections.abc import Mapping
from importlib import import_module

from agents.strategies.context import Strategy

SCREEN_THEN_TIME = "screen-then-time"

STRATEGIES = ("judge", "sample", "contrastive", "tree", "tools", SCREEN_THEN_TIME)

STRATEGY_TEXTS: Mapping[str, str] = {
    "judge": "One candidate after the other: write, evaluate, then a Judge says what to change.",
    "sample": "Independent tries of the same prompt, four written at a time, without a Judge; the best counts.",
    "contrastive": "The Coder sees up to three correct candidates of different speed and says what sets them apart.",
    "tree": "Beam search: the best candidate and one that differs from it are each changed in two ways.",
    "tools": "The Coder itself decides when to evaluate what, and hands in what it found best.",
    SCREEN_THEN_TIME: "As judge; hosts without the device screen each candidate, and only what survives is timed.",
}
"""What each strategy does, in a sentence."""

# The built-in model answers only the requests of the other strategies.
NEEDS_AN_LLM = frozenset({"contrastive", "tools"})

# Strategies that choose among candidates by their times.
NEEDS_TIMES = frozenset({"contrastive", "tree"})

# Strategies whose prompts show profiles.
SHOWS_PROFILES = frozenset({"judge", "tree", "tools", SCREEN_THEN_TIME})

# Strategies whose first prompt says how many rounds there are: with another number every later prompt is another one.
TELLS_ROUNDS = frozenset({"tools"})


def open_strategy(name: str) -> Strategy:
    """The strategy of this name.

    Raises:
        ValueError: there is none; the text lists those that exist.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown; known: {', '.join(STRATEGIES)}")
    strategy: Strategy = import_module(f"agents.strategies.{name.replace('-', '_')}").run
    return strategy

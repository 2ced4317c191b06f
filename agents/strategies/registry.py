"""The strategies by name. Each is imported when it is opened, because importing LangGraph takes a second."""

from importlib import import_module

from agents.strategies.context import Strategy

SCREEN_THEN_TIME = "screen-then-time"

STRATEGIES = ("judge", "sample", "contrastive", "tree", "tools", SCREEN_THEN_TIME)

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

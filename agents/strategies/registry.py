"""From a strategy's name to its graph. Each is imported when it is asked for: LangGraph takes a second."""

from importlib import import_module

from agents.strategies.context import Strategy

STRATEGIES = ("judge", "sample", "contrastive", "tree", "tools")

# A compiler search follows the Judge's advice and nothing else.
NEEDS_AN_LLM = frozenset({"contrastive", "tools"})

# Whose models are shown where a candidate's time goes.
SHOWS_PROFILES = frozenset({"judge", "tree", "tools"})


def open_strategy(name: str) -> Strategy:
    """The strategy of this name.

    Raises:
        ValueError: there is none; names those that there are.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown; known: {', '.join(STRATEGIES)}")
    strategy: Strategy = import_module(f"agents.strategies.{name}").run
    return strategy

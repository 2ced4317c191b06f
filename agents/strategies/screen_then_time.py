"""The strategy `screen-then-time`: the search of `judge`, whose candidates are screened before a device times them.

A candidate that does not survive screening takes no time of a GPU. Who screens and who times is the service's business
(`service/worker/screen_then_time.py`): the search sees one outcome of each candidate.
"""

from agents.strategies.judge import run

__all__ = ["run"]

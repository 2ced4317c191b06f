"""Lines of a loop that update an accumulator: how TorchInductor writes sums, products, extremes and variances."""

import re
from dataclasses import dataclass

_SUM = re.compile(r"^(?P<acc>\w+) = (?P=acc) (?P<op>[+*]) (?P<value>[^;]+);$")
_PICK = re.compile(
    r"^(?P<acc>\w+) = (?P<op>maximum|minimum|max_propagate_nan|min_propagate_nan)\((?P=acc), (?P<value>[^;]+)\);$"
)
_MASKED = re.compile(r"^(?P<acc>\w+) = (?P<op>sum|prod|max|min)_masked_reduce\((?P=acc), (?P<value>[^;]+)\);$")
_CASCADE = re.compile(r"^(?P<acc>\w+) = cascade_sum_combine\((?P<value>[^;&]+), &(?P<helper>\w+)\);$")
_WELFORD = re.compile(r"^(?P<acc>\w+) = welford_combine\((?P=acc), (?P<value>[^;&]+?)(?:, &(?P<helper>\w+))?\);$")
_OPERATIONS = {"sum": "+", "prod": "*", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True)
class Update:
    """An update of `accumulator` in a loop; `operation` is +, *, the name of a function, cascade or welford."""

    accumulator: str
    operation: str
    helper: str | None = None


def read_update(text: str) -> Update | None:
    """A line of a loop as an update; None: it is none."""
    for pattern in (_SUM, _PICK, _MASKED, _CASCADE, _WELFORD):
        match = pattern.match(text)
        if match is None:
            continue
        if re.search(rf"\b{match['acc']}\b", match["value"]):
            return None
        if pattern in (_CASCADE, _WELFORD):
            return Update(match["acc"], "cascade" if pattern is _CASCADE else "welford", match["helper"])
        return Update(match["acc"], _OPERATIONS.get(match["op"], match["op"]))
    return None

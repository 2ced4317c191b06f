"""Reference first, candidate after, the mean of 100 calls on one set of inputs: a sandbox command of its own.

Request on standard input: `{"reference": source, "candidate": source}`; answer: `{"speedup": float}`. Runs trusted code
only: it is the way of measuring that candidates fool, shown beside the referee's.
"""

import json
import sys
import time
import types
from typing import Any

import torch

CALLS = 100
WARM_CALLS = 3


def load(source: str, name: str) -> tuple[types.ModuleType, Any]:
    """The module of a source and an instance of its model."""
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 - our own sources
    torch.manual_seed(0)
    arguments = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    return module, getattr(module, "Model" if name == "reference" else "ModelNew")(*arguments)


def mean_s(model: Any, inputs: list[Any]) -> float:
    """The mean time of a call."""
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            model(*inputs)
        start = time.perf_counter()
        for _ in range(CALLS):
            model(*inputs)
        return (time.perf_counter() - start) / CALLS


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    module, reference = load(request["reference"], "reference")
    _, candidate = load(request["candidate"], "candidate")
    inputs = module.get_inputs()
    first = mean_s(reference, inputs)
    print(json.dumps({"speedup": first / mean_s(candidate, inputs)}))


main()

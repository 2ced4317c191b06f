"""What the guards of a delivered model cost a call: kernels put back into tiny models that compute what torch does.

Run: python -m benchmarks.guard_cost [--rounds 400]
Writes benchmarks/results/guard_cost.md.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from evaluator.platforms import load_platform
from tests.support.put_back_models import captured, chosen, loaded, region
from whole_models.put_back import Variant, bundle, put_back

RESULTS = Path(__file__).parent / "results"
LAYERS = (1, 4, 16, 64)
CALLS = 20  # in a row, of one side
MODEL = """import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(8))
        self.shift = torch.nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.tanh(x * self.scale + self.shift)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range({layers})])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def get_inputs():
    return [torch.rand(8, 8)]


def get_init_inputs():
    return []
"""
ABOUT = """# What guards cost a call of a delivered model

Tiny models of layers with two parameters each, and a kernel in every layer that computes what torch does, put back by
`whole_models.put_back`. Microseconds of processor time, since time in which other programs ran is not the model's:
medians of rounds of {calls} calls in one process with one thread, whose sides take turns.

- *original*: the model's own code.
- *put back*: a call with kernels, guards included.
- *its graph*: what the guards stand in front of, called without them.
- *guards*: put back less its graph: arguments, modes, attributes, hooks and weights are looked at.
- *refused*: a call with another shape, for which the original code runs, and by how much that is slower than the
  original with that shape.

Command: `python -m benchmarks.guard_cost --rounds {rounds}`. Device: {device}; torch {torch}. Load of the machine
when it began, in processes that ran or waited: {load:.1f}{shared}.
"""


def measure(layers: int, rounds: int) -> dict[str, float]:
    """The medians in microseconds, by side."""
    source = MODEL.format(layers=layers)
    found = captured(source)
    graph = found.graphs[0]
    operators = len(graph.nodes) // layers
    places = [[node.name for node in graph.nodes[n * operators : (n + 1) * operators]] for n in range(layers)]
    module = loaded(
        bundle(put_back(source, [Variant(found, chosen(graph, region(graph, "r01_layer", *places)))])), "delivered"
    )
    original, ours = loaded(source).Model(), module.ModelNew()
    ours.load_state_dict(original.state_dict())
    x, other = torch.rand(8, 8), torch.rand(7, 8)
    assert torch.equal(ours(x), original(x)) and torch.equal(ours(other), original(other))
    place: Any = vars(ours)["_kw_place"]
    captured_graph: Any = module._kw_GRAPHS[place.index]
    leaves = captured_graph.leaves_of(type(original).forward, (x,), {})
    assert leaves is not None and place.called, "the kernels run"
    return medians(
        {
            "original": lambda: original(x),
            "put back": lambda: ours(x),
            "its graph": lambda: captured_graph.run(leaves, place.weights, place.kernels),
            "original, other shape": lambda: original(other),
            "put back, other shape": lambda: ours(other),
        },
        rounds,
    )


def medians(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median over rounds of a call's processor time on each side, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 5):
        for name, call in sides.items():
            began = time.thread_time()
            for _ in range(CALLS):
                call()
            if number >= 5:
                times[name].append((time.thread_time() - began) / CALLS * 1e6)
    return {name: statistics.median(each) for name, each in times.items()}


def row(layers: int, us: Mapping[str, float]) -> str:
    """One line of the table."""
    guards = us["put back"] - us["its graph"]
    refused = us["put back, other shape"] - us["original, other shape"]
    return (
        f"| {layers} | {2 * layers} | {us['original']:.1f} | {us['put back']:.1f} | {us['its graph']:.1f} | "
        f"{guards:.1f} | {refused:+.1f} |"
    )


def main() -> int:
    """Measure each model and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    shared = " (other programs ran, and took caches and clock rate: upper bounds)" if load > 0.5 else ""
    about = ABOUT.format(
        calls=CALLS,
        rounds=options.rounds,
        device=load_platform("cpu").device().name,
        torch=torch.__version__,
        load=load,
        shared=shared,
    )
    columns = ("layers", "weights", "original", "put back", "its graph", "guards", "refused")
    lines = [about, f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    with torch.no_grad():
        lines += [row(layers, measure(layers, options.rounds)) for layers in LAYERS]
    text = "\n".join(lines) + "\n"
    (RESULTS / "guard_cost.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What is judged on a GPU, what must come of it, and what screening without a GPU said of it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.screening.faults import cuda, triton
from evaluator.evaluate import Effort
from evaluator.platforms import load_platform
from tests.platforms.gpu.attacks import ATTACKS, GAINS, PLAIN
from tests.platforms.gpu.honest import HONEST
from tests.platforms.gpu.ops import LARGE
from tests.platforms.kits import KITS, OP

ROOT = Path(__file__).parents[2]
PLATFORMS = ("triton", "cuda")  # kernels of Triton build in seconds, so they come first
PARTS = ("A/A", "kit", "attack", "honest", "gain", "5 % slower", "starter", "fault", "exemplar", "profile")
"""In the order in which they are judged: what needs torch alone comes first, and what tells most of the referee."""

PROFILED = ("rmsnorm_gelu", "softcap_attention")
_SCREENED = ROOT / "benchmarks" / "results" / "screening.json"
_STARTER = ROOT / "tasks" / "suites" / "starter"
_KERNELS = ROOT / "benchmarks" / "screening"
_MEMORY_MB = 24576  # a process with a context takes gigabytes of the host's memory, too
_BUILD_S = 240.0
_VERDICT = Effort(measure_budget_s=1.0, baselines=("eager",), build_timeout_s=_BUILD_S, memory_mb=_MEMORY_MB)
_FIGURE = Effort(measure_budget_s=4.0, baselines=("eager",), build_timeout_s=_BUILD_S, memory_mb=_MEMORY_MB)
_BASELINES = Effort(
    measure_budget_s=6.0, baselines=("eager", "compile"), build_timeout_s=_BUILD_S, memory_mb=_MEMORY_MB
)

LARGER = {
    "adamw_step": {"PARAMETERS": "1 << 24"},
    "adaptive_norm_block": {"BATCH": "64"},
    "add_layer_norm": {"TOKENS": "16384"},
    "bilinear_resize": {"BATCH": "64"},
    "channel_stats": {"BATCH": "32"},
    "conv_relu_pool": {"BATCH": "64"},
    "dequant_linear": {"IN_FEATURES": "8192", "OUT_FEATURES": "8192"},
    "embedding_bag": {"ROWS": "200000", "BAGS": "16384"},
    "gated_running_mean": {"BATCH": "32"},
    "gelu_tanh": {"BATCH": "16384"},
    "group_norm_silu": {"BATCH": "32"},
    "label_smoothing_loss": {"SAMPLES": "16384"},
    "masked_softmax": {"BATCH": "16"},
    "mixed_pool": {"BATCH": "64"},
    "pairwise_distance": {"QUERIES": "4096", "POINTS": "8192"},
    "rmsnorm_gelu": {"TOKENS": "16384"},
    "rotary_embedding": {"BATCH": "16"},
    "softcap_attention": {"BATCH": "8", "LENGTH": "512"},
}
"""Constants of the starter ops that make them large enough for a GPU."""

SLOWED_BY = 0.05
_ROWS_MORE = 1433
"""Rows that are copied besides. Of the 8192 rows eager reads and writes seven tensors; a copy of 7 / 2 * 5 % of the
rows reads and writes 5 % more."""

_SLOWER = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        x[:{_ROWS_MORE}].clone()
        return F.relu(x * self.weight) + x
"""


@dataclass(frozen=True)
class Case:
    """One evaluation or profile, and what must come of it.

    Attributes:
        part: one of `PARTS`.
        name: of the candidate, within its part and platform.
        verdicts: of which it must get one; none: what it gets is what is asked for.
        effort: of the evaluation.
        screened: the verdict that screening without a GPU gave; empty if it was not screened.
        against: another candidate, beside which it is timed; empty: none.
        at_most: how much faster than that one it may be.
    """

    part: str
    name: str
    platform: str
    op: str
    source: str
    verdicts: tuple[str, ...] = ()
    effort: Effort = _VERDICT
    screened: str = ""
    against: str = ""
    at_most: float = float("inf")

    @property
    def key(self) -> str:
        """Its name among all cases."""
        return f"{self.part}/{self.platform}/{self.name}"


def cases(again: int) -> Iterator[Case]:
    """All of them, in the order of `PARTS`; an op against itself `again` times, and a slower one as often."""
    for number in range(again):
        yield Case("A/A", f"run {number + 1}", "cuda", LARGE, PLAIN, effort=_FIGURE)
    yield from _of_kits()
    for name, attack in ATTACKS.items():
        yield Case("attack", name, attack.platform, attack.op, attack.source, attack.verdicts)
    for name, honest in HONEST.items():
        yield Case("honest", name, honest.platform, honest.op, honest.source, ("passed",))
    for name, gain in GAINS.items():
        yield Case("gain", name, "cuda", gain.op, gain.tried, effort=_FIGURE, against=gain.plain, at_most=gain.at_most)
    for number in range(again):
        yield Case("5 % slower", f"run {number + 1}", "cuda", LARGE, _SLOWER, effort=_FIGURE)
    screened = json.loads(_SCREENED.read_text())
    for platform in PLATFORMS:
        for op in sorted(LARGER):
            source, said = (_KERNELS / platform / f"{op}.py").read_text(), screened[f"{platform}/{op}"]["verdict"]
            yield Case("starter", op, platform, larger(op), source, ("passed",), _BASELINES, said)
    for module in (triton, cuda):
        for name, fault in module.FAULTS.items():
            said = screened[f"fault/{fault.platform}/{name}"]["verdict"]
            op = (_STARTER / f"{fault.op}.py").read_text()
            yield Case("fault", name, fault.platform, op, fault.source(_KERNELS), screened=said)
    for platform in PLATFORMS:
        folder = load_platform(platform).prompts().folder / "exemplars"
        for path in sorted(folder.glob("*_task.py")):
            name = path.stem.removesuffix("_task")
            source = path.with_name(f"{name}.py").read_text()
            yield Case("exemplar", name, platform, path.read_text(), source, ("passed",), _BASELINES, "screened")
    for platform in PLATFORMS:
        for op in PROFILED:
            source = (_KERNELS / platform / f"{op}.py").read_text()
            yield Case("profile", op, platform, larger(op), source, effort=_BASELINES)


def _of_kits() -> Iterator[Case]:
    for platform in PLATFORMS:
        yield Case("kit", "right", platform, OP, KITS[platform].right, ("passed",))
    for platform in PLATFORMS:
        kit = KITS[platform]
        yield Case("kit", "wrong", platform, OP, kit.wrong, ("wrong_output",))
        yield Case("kit", "raises", platform, OP, kit.raises, ("crashed",))
        yield Case("kit", "no Python", platform, OP, kit.broken, ("build_failed",))
        for name, source in kit.cheats.items():
            yield Case("kit", f"cheat: {name}", platform, OP, source, ("wrong_output", "integrity"))


def larger(op: str) -> str:
    """A starter op with the constants of `LARGER`.

    Raises:
        ValueError: the op has no such constant.
    """
    text = (_STARTER / f"{op}.py").read_text()
    for name, value in LARGER[op].items():
        text, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{op}: expected one line that sets {name}, found {found}")
    return text

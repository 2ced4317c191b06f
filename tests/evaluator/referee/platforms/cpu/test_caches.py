"""--cold: what is timed finds none of its data in the caches, and says so."""

import os

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.platforms.cpu.caches import CacheScrubber, last_level_cache_bytes
from sandbox.base import Sandbox
from tasks.load import task_from_source

OP = """import torch

def op(x):
    return torch.relu(x)

def get_inputs():
    return [torch.randn(256, 1024)]
"""
SAME = """import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def test_scrubbing_leaves_the_referee_on_every_core() -> None:
    before = os.sched_getaffinity(0)
    scrub = CacheScrubber()
    scrub()
    assert os.sched_getaffinity(0) == before


def test_every_core_has_touched_other_data_of_twice_the_last_level_cache() -> None:
    scrub = CacheScrubber()
    scrub()
    assert scrub._other.numel() >= 2 * last_level_cache_bytes()
    assert bool((scrub._other == len(os.sched_getaffinity(0))).all())


@pytest.mark.docker
def test_a_result_with_cold_caches_says_so(docker_sandbox: Sandbox) -> None:
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.3, baselines=("eager",), cold=True)
    task = task_from_source(OP, name="cold", where="cold")
    found = evaluate(task, SAME, sandbox=docker_sandbox, platform=load_platform("cpu"), effort=effort)
    assert found.passed, found.message
    assert "cold" in found.tags
    assert found.provenance["settings"]["cold"] is True

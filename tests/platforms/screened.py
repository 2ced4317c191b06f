"""Candidates for platforms that screen, each for an op of its own, and what must be said of them."""

from pathlib import Path
from typing import Protocol

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform, screening_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source

EFFORT = Effort(memory_mb=4096, call_timeout_s=60.0, build_timeout_s=240.0, baselines=(), architectures=("sm_80",))
SHOWN = {"executed", "custom_kernel", "race_free", "in_bounds"}  # of an exemplar, whatever is installed
_OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


class ScreenedCase(Protocol):
    """A candidate, and what the verdict must say."""

    @property
    def op(self) -> str:
        """The op's source."""
        ...

    @property
    def candidate(self) -> str:
        """The candidate's source."""
        ...

    @property
    def verdict(self) -> str:
        """The verdict, with its code behind a colon if it has one."""
        ...

    @property
    def says(self) -> tuple[str, ...]:
        """Words that message or detail must hold."""
        ...

    @property
    def shown(self) -> tuple[str, ...]:
        """Words that the profile must hold."""
        ...

    @property
    def tags(self) -> str:
        """Tags that it must have; those after a minus it must not have."""
        ...


def op_of(reference: str, shape: str) -> str:
    """An op: an expression of `x`, a tensor of this shape."""
    return _OP.format(reference=reference, shape=shape)


def judged(sandbox: Sandbox, case: ScreenedCase, platform: str, effort: Effort = EFFORT) -> Evaluation:
    """The evaluation of a case's candidate."""
    task = task_from_source(case.op, name="case")
    return evaluate(task, case.candidate, sandbox=sandbox, platform=screening_platform(platform), effort=effort)


def see(case: ScreenedCase, found: Evaluation) -> None:
    """The evaluation says what the case names, and no time."""
    verdict, _, code = case.verdict.partition(":")
    told = f"{found.verdict}:{found.code} {found.message}\n{found.detail}\n{found.profile}"
    assert found.verdict == verdict and (not code or found.code == code), told
    assert all(words in f"{found.message}\n{found.detail}" for words in case.says), told
    assert all(words in str(found.profile) for words in case.shown), told
    wanted, unwanted = (
        {tag.lstrip("-") for tag in case.tags.split() if tag.startswith("-") == minus} for minus in (False, True)
    )
    assert wanted <= set(found.tags) and not unwanted & set(found.tags), told
    assert found.speedup is None and not found.latency_ms


def exemplars_of(platform: str) -> list[Path]:
    """The ops of a platform's exemplars."""
    return sorted((load_platform(platform).prompts().folder / "exemplars").glob("*_task.py"))


def see_exemplar(sandbox: Sandbox, path: Path, platform: str, effort: Effort = EFFORT) -> None:
    """An exemplar is screened, and all is shown of it but what needs a compiler for GPUs."""
    task = task_from_source(path.read_text(), name="exemplar")
    source = path.with_name(path.name.replace("_task", "")).read_text()
    found = evaluate(task, source, sandbox=sandbox, platform=screening_platform(platform), effort=effort)
    assert found.verdict == "screened", f"{found.message}\n{found.detail}"
    assert set(found.tags) >= SHOWN, found.profile

"""Every attack ends as the verdict that its header names; none passes, none hangs, none leaves anything behind."""

import re
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Verdict
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.load import load_task

ATTACKS = Path(__file__).parent / "attacks"
EFFORT = Effort(
    wall_s=120, memory_mb=4096, call_timeout_s=5, build_timeout_s=20, measure_budget_s=1, baselines=("eager",)
)
pytestmark = pytest.mark.docker


def attacks() -> list[Path]:
    return sorted(path for path in ATTACKS.glob("*.py") if path.name != "op.py")


@pytest.mark.parametrize("path", attacks(), ids=lambda path: path.stem)
def test_attack_is_refused(path: Path, docker_sandbox: Sandbox) -> None:
    source = path.read_text()
    header = re.search(r"^# verdict: (.+)$", source, re.MULTILINE)
    assert header is not None
    expected = {text.strip() for text in header[1].split(" or ")}
    evaluation = evaluate(
        load_task(ATTACKS / "op.py"), source, sandbox=docker_sandbox, platform=load_platform("cpu"), effort=EFFORT
    )
    found = evaluation.verdict.value + (f"/{evaluation.code}" if evaluation.code else "")
    assert found in expected, f"{found}: {evaluation.message}\n{evaluation.detail}"
    assert evaluation.verdict is not Verdict.PASSED
    assert evaluation.speedup is None
    assert evaluation.message

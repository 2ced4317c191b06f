"""What becomes of a float64 run that says nothing of the reference's outputs."""

import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.correctness.reference import _says_little
from sandbox.process.sandbox import ProcessSandbox
from tasks.build import task_from_source
from tests.platforms.gpu.ops import without_state

BLIND = without_state("x", "x * 2 if x.dtype == torch.float32 else x * float('nan')", "torch.randn(64, 256)")
EFFORT = Effort(measure_budget_s=0.3, baselines=("eager",))


def test_an_oracle_that_is_not_finite_where_the_reference_is_is_none(process_sandbox: ProcessSandbox) -> None:
    task = task_from_source(BLIND, name="blind")
    right, wrong = (BLIND.replace("class Model(", "class ModelNew(").replace("x * 2 if", f"{made} if")
                    for made in ("x + x", "(x.bfloat16() * 2.02).float()"))  # fmt: skip
    found = evaluate(task, right, sandbox=process_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict == "passed" and "compared with the reference itself" in str(found.correctness)
    found = evaluate(task, wrong, sandbox=process_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict == "wrong_output", f"{found.message}\n{found.detail}"


def test_some_places_without_a_finite_oracle_leave_it_one() -> None:
    value, wide = torch.ones(8), torch.ones(8, dtype=torch.float64)
    assert not _says_little(wide, value)
    wide[:4] = torch.nan
    assert not _says_little(wide, value)
    wide[4] = torch.inf
    assert _says_little(wide, value)
    value[:5] = torch.nan
    assert not _says_little(wide, value)

"""What a check of a task has found out is kept whole."""

from pathlib import Path

from evaluator.task_check import Problem, TaskCheck
from service.task_findings import TaskFindings
from tasks.task import Task

TASK = Task("op", "def op(x): return x")


def test_a_finding_is_read_as_it_was_found(tmp_path: Path) -> None:
    found = TaskCheck(
        task=TASK.id,
        ok=False,
        problems=(Problem("out_of_memory", "needs about 4 GiB"),),
        warnings=("weak",),
        inputs=("float32 (4, 4)",),
        outputs=("float32 (4,)",),
        parameters=("bias",),
        eager_ms=0.5,
        memory_mb=300,
        need_mb=4000,
        cost_s=1.5,
    )
    findings = TaskFindings(tmp_path)
    findings.put(TASK, found)
    assert findings.get(TASK) == found


def test_what_may_be_the_machines_is_not_kept(tmp_path: Path) -> None:
    findings = TaskFindings(tmp_path)
    findings.put(TASK, TaskCheck(TASK.id, False, (Problem("timed_out", "20 s"),)))
    assert findings.get(TASK) is None

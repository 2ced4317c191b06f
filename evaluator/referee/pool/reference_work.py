"""How much work one call of a task is, as the reference's process counts it."""

from dataclasses import dataclass

from ..errors import Finding, RunnerFailed, of_task
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from ..protocol import untrusted


@dataclass(frozen=True)
class CountedWork:
    """The work of one call: floating-point operations, and the touched bytes of inputs and state."""

    flops: int = 0
    input_bytes: int = 0
    state_bytes: int = 0


def count_work(reference: RunnerHandle, inputs: InputSet) -> CountedWork | None:
    """Have the reference make one call and count its work; None if it fails on these inputs.

    Raises:
        Finding: its process has ended, or answers with something else than counts.
    """
    try:
        reply = reference.give({"op": "work"}, inputs.tree, inputs.contents, timeout_s=60)
        return CountedWork(
            *(int(untrusted.number(reply.get(name))) for name in ("flops", "input_bytes", "state_bytes"))
        )
    except RunnerFailed as failure:
        if reference.has_ended:
            raise of_task(failure, doing="a call that is counted") from None
        return None
    except ValueError as error:
        raise Finding("task_invalid", f"the reference's process gave no count of its work: {error}") from None

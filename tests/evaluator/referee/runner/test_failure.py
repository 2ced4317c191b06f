"""What a runner says of a command that failed: the candidate's own frames, and none of the runner's or of torch's."""

from typing import Any

import pytest
import torch

from evaluator.referee.protocol.tensors import Tree
from evaluator.referee.runner.main import failure


class Fails(torch.nn.Module):
    """A model that fails by its own error, or by one that the runner raises in it."""

    def __init__(self, broken_tree: bool) -> None:
        super().__init__()
        self.broken_tree = broken_tree

    def forward(self) -> None:
        """Fail."""
        try:
            Tree.from_json({}) if self.broken_tree else [][0]
        except LookupError as error:
            raise ValueError("no element") from error


def test_a_traceback_shows_the_frames_of_the_candidate_alone() -> None:
    with pytest.raises(ValueError, match="no element") as caught:
        Fails(broken_tree=False)()
    told = failure(caught.value)
    assert told["error"] == "ValueError: no element"
    trace = str(told["trace"])
    assert "in forward" in trace and "IndexError" in trace and "direct cause" in trace
    assert "_call_impl" not in trace


def test_a_frame_of_the_runner_is_left_out_where_the_candidate_has_one() -> None:
    with pytest.raises(Exception) as caught:
        Fails(broken_tree=True)()
    trace = str(failure(caught.value)["trace"])
    assert "in forward" in trace and "protocol/tensors.py" not in trace


def test_a_frame_of_tritons_launch_is_left_out() -> None:
    """What a kernel has done wrong, and in which line, is in the message; the candidate's frame says which launch."""
    launch: dict[str, Any] = {"Fails": Fails}
    code = "def run():\n    Fails(broken_tree=False).forward()\n"
    exec(compile(code, "/tools/triton/runtime/jit.py", "exec"), launch)
    with pytest.raises(ValueError) as caught:
        launch["run"]()
    trace = str(failure(caught.value)["trace"])
    assert "in forward" in trace and "jit.py" not in trace


def test_a_traceback_of_nothing_else_stays_whole() -> None:
    def deep() -> None:
        Tree.from_json({})

    with pytest.raises(Exception) as caught:
        deep()
    error = caught.value
    while error.__traceback__ is not None and "protocol" not in error.__traceback__.tb_frame.f_code.co_filename:
        error.__traceback__ = error.__traceback__.tb_next
    assert "protocol/tensors.py" in str(failure(error)["trace"])


def test_memory_of_a_device_that_runs_out_is_told_as_memory() -> None:
    told = failure(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB"))
    assert told["kind"] == "out_of_memory"

"""Platform `triton` in a runner: candidates in the field's form are interpreted, and their launches recorded."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ....protocol.framing import Message
from ... import model_state
from ..gpu import seeming

if TYPE_CHECKING:
    from ...main import Runner

_RECORD_BYTES = 256 << 20  # of one record of launches


class TritonRunner:
    """See `base.RunnerPlatform`."""

    def __init__(self) -> None:
        self._state: Any = None  # what launches of a candidate look at; None: there is no candidate

    def modules(self) -> Mapping[str, ModuleType]:
        """None: candidates import torch and triton."""
        return {}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """`recorded_call` records the launches of a call, `check_launches` makes them again, elsewhere."""

        def check(message: Message) -> Message:
            from . import checking

            return checking.check(runner, message)

        return {"recorded_call": lambda message: self._recorded_call(runner, message), "check_launches": check}

    def keep_builds(self, folder: Path) -> None:
        """Have `triton.jit` interpret, and torch.cuda say that there is a GPU."""
        from . import recording

        seeming.pretend()
        self._state = recording.begin()

    def foreign_code(self) -> AbstractContextManager[None]:
        """To a candidate tensors seem to lie on a GPU."""
        return contextlib.nullcontext() if self._state is None else _seeming()

    def settle(self) -> None:
        """Nothing is timed."""

    def give_way(self) -> None:
        """Nothing is timed."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return contextlib.nullcontext()

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def _recorded_call(self, runner: "Runner", message: Message) -> Message:
        """One call of the model; its outputs, and the record of its launches: JSON, then memory as it was before."""
        from . import recording

        inputs = runner.decoded(message["tree"])
        recorder = recording.Recorder(bool(message["run"]), _RECORD_BYTES)
        recorder.expect(model_state.tensors_in(inputs))
        recorder.expect(model_state.all_tensors(runner.model).values())
        self._state.recorder = recorder
        try:
            torch.default_generator.manual_seed(message["seed"])
            with torch.no_grad(), self.foreign_code():
                value = runner.model(*inputs)
        finally:
            self._state.recorder = None
        told = {"events": recorder.events, "regions": recorder.regions, "problem": recorder.problem}
        written = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
        return {
            "tree": runner.reveal(value)["tree"],
            "record": runner.reveal([written, *recorder.blobs])["tree"],
        }


@contextlib.contextmanager
def _seeming() -> Iterator[None]:
    with seeming.SeemingCuda():
        yield

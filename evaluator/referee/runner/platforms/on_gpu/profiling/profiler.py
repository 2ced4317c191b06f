"""The profiler's questions to a runner on a GPU: one command, whose `what` names the question."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .....protocol.framing import Message
from .... import model_state
from ..memory import Memory
from . import compiled, launches, programs
from .watched_call import INIT, INPUTS, STATE

_WARM_CALLS = 2  # before a call that is watched: the first ones compile, tune and allocate
_LOG = "log"


class Profiler:
    """The state of the profiler in one runner.

    Args:
        decode: turns the description of a tree in the input buffer into Python values.
        model: returns the model, which lies on the device.
        memory: the device's.
    """

    def __init__(self, decode: Callable[[Any], Any], model: Callable[[], Any], memory: Memory) -> None:
        self._decode, self._model, self._memory = decode, model, memory
        self._folder = Path()

    def answer(self, message: Message) -> Message:
        """Answer one question."""
        questions = {
            "launches": self._launches,
            "compiled": self._compiled,
            "keep": self._keep,
            "watch": self._watch,
        }
        self._folder = Path.cwd() / "watched"
        self._folder.mkdir(exist_ok=True)
        return questions[message["what"]](message)

    def _launches(self, message: Message) -> Message:
        """The kernels of one call."""
        model, inputs = self._model(), self._decode(message["tree"])

        def call() -> None:
            model(*inputs)
            self._memory.wait()

        with torch.no_grad():
            for _ in range(_WARM_CALLS):
                call()
            return {"rows": launches.observe(call, self._folder / "trace.json")}

    def _compiled(self, _: Message) -> Message:
        """What compilers tell of the kernels that the calls so far have loaded."""
        return {"triton": compiled.of_triton(), **compiled.of_libraries(Path.cwd(), self._folder)}

    def _keep(self, message: Message) -> Message:
        """Write what the model is constructed with, or called with, to a file for `watched_call`."""
        name = INIT if message["name"] == "init" else INPUTS
        torch.save(self._decode(message["tree"]), self._folder / name)
        return {}

    def _watch(self, message: Message) -> Message:
        """Run a program: by itself, or (`call`) with a process that calls the candidate under it.

        With `lines`, only those that begin with one of these words are told.
        """
        program = programs.find(message["program"])
        if program is None:
            return {"found": False}
        words = [program, *message["arguments"]]
        if message["call"]:
            words += ["--log-file", _LOG, *self._watched(message["warm_calls"])]
        ended = programs.run(
            words,
            self._folder,
            log=_LOG if message["call"] else "",
            environment={**message["environment"], "PYTHONPATH": str(_root())},
            timeout_s=message["timeout_s"],
        )
        told: Message = {"found": True, "status": ended.status, "errors": ended.errors, "cut": ended.cut}
        if (kept := message.get("lines")) is None:
            return {**told, "log": ended.log}
        lines, count = programs.lines_of(self._folder, kept)
        return {**told, "log": "\n".join(lines), "lines": count}

    def _watched(self, warm_calls: int) -> list[str]:
        """The words of the process that calls the candidate. The model's present state is written down for it."""
        model = self._model()
        tensors = {name: value.detach().cpu() for name, value in model_state.all_tensors(model).items()}
        torch.save({"tensors": tensors, "training": bool(getattr(model, "training", False))}, self._folder / STATE)
        module = f"{__package__}.watched_call"
        return [sys.executable, "-s", "-m", module, str(self._folder), self._memory.device, str(warm_calls)]


def _root() -> Path:
    """The folder from which this package is imported."""
    return Path(__file__).parents[len(__package__.split("."))]

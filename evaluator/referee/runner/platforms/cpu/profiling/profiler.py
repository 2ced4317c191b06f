"""The profiler's questions to a runner: calls of the model under observers that would disturb a timed call.

All answers are claims, because the candidate shares this process.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .....protocol import framing
from . import operators, stack_sampler

_MAX_CALLS = 100_000


class Profiler:
    """The state of the profiler in one runner.

    Args:
        decode: Turns the description of a tree in the input buffer into Python values.
        model: Returns the model that is profiled.
    """

    def __init__(self, decode: Callable[[Any], Any], model: Callable[[], Any]) -> None:
        self._decode = decode
        self._model = model
        self._arguments: list[Any] = []  # the calls use these sets of inputs in turn
        self._folder = Path()
        self._compiler = ""

    def answer(self, message: framing.Message) -> framing.Message:
        """Answer one question; `what` names it."""
        questions = {
            "prepare": self._prepare,
            "arguments": self._take_arguments,
            "repeat": self._repeat,
            "operators": self._observe_operators,
            "sample": self._sample,
        }
        return questions[message["what"]](message)

    def top_operators(self, message: framing.Message) -> framing.Message:
        """Where torch's profiler sees the time of one call go: operator, share of processor time."""
        arguments = self._decode(message["tree"])
        # Without kineto, which takes half a second to start.
        with torch.no_grad(), torch.autograd.profiler.profile(use_kineto=False) as profile:
            self._model()(*arguments)
        rows = sorted(profile.key_averages(), key=lambda row: -row.self_cpu_time_total)
        total = sum(row.self_cpu_time_total for row in rows) or 1.0
        return {"operators": [[row.key[:60], round(row.self_cpu_time_total / total, 3)] for row in rows[:6]]}

    def _prepare(self, message: framing.Message) -> framing.Message:
        """Put the compiler shims first on PATH. Asked for before any foreign code is loaded.

        The referee reads the folder later. It has another uid and no right to pass over the permissions of files, so
        these must let it in.
        """
        self._folder, self._compiler = Path(message["folder"]), message["compiler"]
        bin_folder = self._folder / "bin"
        bin_folder.mkdir(parents=True)
        self._folder.parent.chmod(0o711)
        self._folder.chmod(0o755)
        for name, script in message["shims"].items():
            (bin_folder / name).write_text(script)
            (bin_folder / name).chmod(0o755)
        os.environ["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
        return {}

    def _take_arguments(self, message: framing.Message) -> framing.Message:
        """Keep one more set of inputs, which lies in the input buffer, for the calls to come."""
        self._arguments.append(self._decode(message["tree"]))
        return {}

    def _repeat(self, message: framing.Message) -> framing.Message:
        """Call the model at least `calls_min` times and for `seconds`."""
        calls = self._call_for(message["seconds"], calls_min=message["calls_min"])
        return {"calls": calls, "compiles": "torch._inductor.compile_fx" in sys.modules}

    def _observe_operators(self, message: framing.Message) -> framing.Message:
        """Time, calls and allocations by torch operator."""
        return operators.observe(self._call, message["calls"])

    def _sample(self, message: framing.Message) -> framing.Message:
        """Processor time by kind of code and by function of the candidate's own libraries."""
        library = stack_sampler.build(self._folder, self._compiler)
        addresses = stack_sampler.sample(library, lambda: self._call_for(message["seconds"], calls_min=1))
        return stack_sampler.attribute(addresses, own=self._folder.parent, profiler=self._folder)

    def _call_for(self, seconds: float, *, calls_min: int) -> int:
        start = time.perf_counter()
        calls = 0
        while calls < _MAX_CALLS and (calls < calls_min or time.perf_counter() - start < seconds):
            self._call(calls)
            calls += 1
        return calls

    def _call(self, number: int) -> None:
        with torch.no_grad():
            self._model()(*self._arguments[number % len(self._arguments)])

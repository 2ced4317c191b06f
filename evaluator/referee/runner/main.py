"""The main loop of a runner, a process that executes foreign code and is driven by the referee's messages.

Nothing that this process says is evidence. It claims where its outputs lie; the referee stops it and reads them. It
holds no secret, its clock is not used, and it has no channel for results, so a candidate that takes it over gains
nothing.
"""

import contextlib
import errno
import gc
import importlib.util
import mmap
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..protocol import allocator, call_messages, framing
from ..protocol.call_messages import KEEP_ALL, Go
from ..protocol.smaller_shapes import Smaller
from ..protocol.tensors import Tree, TreeError, build, decode, encode, read_rows, view
from . import baselines, build_files, model_state, oracle, perturb
from .call_loop import CallLoop
from .platforms.base import RunnerPlatform
from .platforms.load import load_runner_platform

_OWN = (str(Path(__file__).parents[1]), "<frozen importlib")
_MAX_TRACE = 4000
_CALLING = ("_wrapped_call_impl", "_call_impl")
"""Functions of torch that call a module's `forward`."""

_LAUNCHING = ("/triton/runtime/jit.py", "/triton/runtime/autotuner.py")
"""Files of Triton's that a launch goes through."""


class _Closed(BaseException):
    """The referee has closed the connection."""


Commands = dict[str, Callable[[framing.Message], framing.Message | bytes | None]]

_READY = framing.framed(framing.encoded({"ok": True}))


class Runner:
    """One runner: the module that it loaded, its model, and the outputs that it must keep alive."""

    def __init__(
        self, sock: socket.socket, built: Path, platform: RunnerPlatform, loop: CallLoop | None = None
    ) -> None:
        self.sock = sock
        self.loop = loop
        self.platform = platform
        self.language = platform  # whose kernels the foreign code holds: another's only if one is the reference
        self.built = built  # the folder in which torch.compile and load_inline build
        self.module: Any = None
        self.shape_group: int | None = None
        self.model: Any = None
        self.called: Any = None  # the model as calls run it: as it is, or as a baseline does
        self.input_buffer: mmap.mmap | None = None
        # The tensor of a row of the referee's; another one where inputs lie in a device's memory.
        self.tensor_at: Callable[[Any], torch.Tensor] = lambda row: view(self.input_buffer, row)
        self.kept: list[Any] = []  # values whose addresses the referee has been told
        self._known: Commands = {}

    def commands(self) -> Commands:
        """The commands that the referee may send, by name."""
        return {
            "attach": self.attach,
            "speak": self.speak,
            "load": self.load,
            "construct": self.construct,
            "vary_state": self.vary_state,
            "load_state": self.load_state,
            "eval_mode": self.eval_mode,
            "state": self.state,
            "init_inputs": self.init_inputs,
            "inputs": self.inputs,
            "call": self.call,
            "repeat": self.repeat,
            "oracle": self.oracle,
            "discard": self.discard,
            "work": self.work,
            "wrap": self.wrap,
            "idle": self.idle,
            "settle": self.settle,
            "give_way": self.give_way,
            "peaks": self.peaks,
            "pack": self.pack,
            "unpack": self.unpack,
            "release": self.release,
            **self.language.commands(self),
        }

    def serve(self) -> None:
        """Answer messages until the referee closes the connection."""
        self._known = self.commands()
        while True:
            try:
                message = self.told()
                reply = self._known[message["op"]](message)
            except _Closed:
                return
            except (Exception, SystemExit) as error:
                framing.send(self.sock, failure(error))
            else:
                if isinstance(reply, bytes):
                    framing.send_body(self.sock, reply)
                elif reply is not None:
                    framing.send(self.sock, {"ok": True, **reply})

    def attach(self, message: framing.Message) -> framing.Message:
        """Map the input buffer that the referee sends as a file descriptor."""
        _, fds, _, _ = socket.recv_fds(self.sock, 1, 1)
        [size] = message["sizes"]
        self.input_buffer = mmap.mmap(fds[0], size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        os.close(fds[0])
        return {}

    def speak(self, message: framing.Message) -> framing.Message:
        """Take kernels of another platform from here on, and the commands that it adds."""
        self.language = load_runner_platform(message["language"])
        self._known = self.commands()
        return {}

    def load(self, message: framing.Message) -> framing.Message:
        """Import the task's or the candidate's source, from a file so that inspect and torch.compile find it.

        With `kernel`, the source of a kernel, that kernel's ModelNew is the task's Model. With `shape_group`, a number,
        inputs of the task's `get_input_groups()` stand for those of its `get_inputs()`. The answer: which language
        the loop of timed calls is in.
        """
        name = message["name"]
        if name == "candidate":
            self.platform.keep_builds(self.built)
        torch.manual_seed(message["seed"])
        self.module = self._imported(name, message["source"])
        if message.get("kernel"):
            self.language.keep_builds(self.built)
            self.module.Model = self._imported("source_kernel", message["kernel"]).ModelNew
        getattr(self.module, message["needs"])
        self.shape_group = message.get("shape_group")
        return {"call_loop": "Python" if self.loop is None else "C++"}

    def _imported(self, name: str, source: str) -> Any:
        path = Path.cwd() / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.modules.update(self.language.modules())
        with self.language.foreign_code():
            spec.loader.exec_module(module)
        return module

    def init_inputs(self, _: framing.Message) -> framing.Message:
        """Reveal the arguments of the model's constructor, as the task's `get_init_inputs` gives them."""
        return self.reveal(self.module.get_init_inputs())

    def construct(self, message: framing.Message) -> framing.Message:
        """Build the model under a seed and reveal its tensors by name."""
        arguments = self.decoded(message["tree"])
        torch.manual_seed(message["seed"])
        with self.language.foreign_code():
            model = getattr(self.module, message["class"])(*arguments)
        if not callable(model):
            raise TypeError(f"{message['class']}(...) is not callable")
        self.model = self.called = model
        return self.reveal(
            model_state.of_model(model) if message["class"] == "Model" else model_state.all_tensors(model)
        )

    def vary_state(self, message: framing.Message) -> framing.Message:
        """Change parameters and running statistics, so that none keeps its initial value; reveal the state dict.

        `signs` says whether signs may change, the answer's `signs` whether any has.
        """
        changed = model_state.vary(self.model, message["seed"], signs=message["signs"])
        return {**self.reveal(model_state.of_model(self.model)), "signs": changed}

    def load_state(self, message: framing.Message) -> framing.Message:
        """Copy the reference's parameters and buffers into the model's.

        `names` maps the reference's names to the model's. A name that it lacks is the same in both.
        """
        own, names = model_state.all_tensors(self.model), message["names"]
        with torch.no_grad():
            for name, value in self.decoded(message["tree"]).items():
                target = own.get(names.get(name, name))
                if target is not None and target.shape == value.shape:
                    target.copy_(value)
        return {}

    def eval_mode(self, _: framing.Message) -> framing.Message:
        """Put the model into eval mode, if it has modes."""
        if isinstance(self.model, torch.nn.Module):
            self.model.eval()
        return {}

    def state(self, _: framing.Message) -> framing.Message:
        """Reveal the model's tensors by name."""
        return self.reveal(model_state.all_tensors(self.model))

    def inputs(self, message: framing.Message) -> framing.Message:
        """Make a set of inputs for each seed with the task's generator, and change it as its input family says.

        `smaller` in the message is the rule that makes it smaller before that.
        The answer says of each set whether its family has changed anything. `beside` in the message means that the
        referee does other work at the same time.
        """
        self.kept.clear()
        domains, told = message.get("domains", ()), message.get("smaller")
        smaller = None if told is None else Smaller.from_json(told)
        with self.platform.beside_calls() if message.get("beside") else contextlib.nullcontext():
            made = [
                perturb.make(
                    self.module,
                    family,
                    seed,
                    domains,
                    smaller=smaller,
                    own_group=self.shape_group,
                    **message.get("how", {}),
                )
                for family, seed in zip(message["families"], message["seeds"], strict=True)
            ]
        if message.get("give_back"):
            allocator.give_back()
        return {
            "trees": [self.reveal(inputs)["tree"] for inputs, _ in made],
            "changed": [changed for _, changed in made],
        }

    def call(self, message: framing.Message) -> framing.Message | bytes | None:
        """Call the model once.

        The message holds the places of the input tensors, and how they are nested if all inputs are tensors. The runner
        answers when it is ready. Then the referee fills in the tensors and sends the rest (`Go`). The state that calls
        change is told with the outputs: if the referee asked for it later, a candidate could compute it off the clock.

        Returns:
            The answer as a message, or already encoded; None if it has been sent.
        """
        tensors = [self.tensor_at(row) for row in read_rows(message["tensors"])]
        with torch.no_grad():
            received, spec = None, message["spec"]
            inputs = None if spec is None else build(spec, tensors)
            if self.loop is not None and inputs is not None:
                arguments = tuple(inputs)
                with self.language.foreign_code():
                    received = self.loop.call(self.sock.fileno(), _READY, self.called, arguments, self.kept)
                if received is None:
                    return None
                if isinstance(received, tuple):
                    return self.reveal(received[0])
            go, inputs = self.wait_for_go(inputs, tensors, received)
            if go.keep < KEEP_ALL:
                del self.kept[: max(0, len(self.kept) - go.keep)]  # what that takes is the call's
            elif self.kept:
                # Only the memory, as a caller holds it who keeps a view or an array and lets the tensor go.
                self.kept[-1] = [each.detach() for each in model_state.tensors_in(self.kept[-1])]
            torch.default_generator.manual_seed(go.seed)
            with self.language.foreign_code():
                value = self.called(*inputs)
            if not go.state and (answer := call_messages.pack(value)) is not None:
                self.kept.append(value)
                return answer
            reply = self.reveal(value)
            if go.state:
                reply["state"] = self.reveal(model_state.some_tensors(self.model, go.state))["tree"]
            return reply

    def repeat(self, message: framing.Message) -> framing.Message:
        """Call the model `times` times on the same inputs, one call right after the other."""
        inputs = self.decoded(message["tree"])
        with torch.no_grad():
            for _ in range(message["times"]):
                self.kept.clear()
                self.kept.append(self.called(*inputs))
        return {}

    def oracle(self, message: framing.Message) -> framing.Message:
        """Run the model in float64 on the same inputs and reveal its outputs; a kernel, on inputs nearly the same."""
        arguments = self.decoded(message["tree"])
        if self.language is not self.platform:
            return self.reveal(oracle.rerun(self.model, arguments, message["seed"], self.language.foreign_code))
        torch.manual_seed(message["seed"])
        told = self.reveal(oracle.evaluate(self.model, arguments, inputs_after=message["inputs_after"]))
        if message.get("give_back"):
            told["alone"] = oracle.held_alone(self.kept[-1][1])
            allocator.give_back()
        return told

    def discard(self, message: framing.Message) -> framing.Message:
        """Give back memory of a value that was kept for the referee and has been read."""
        allocator.discard(message["place"], message["nbytes"])
        return {}

    def work(self, message: framing.Message) -> framing.Message:
        """Count the floating-point operations of one call, and the bytes of inputs and state that it touches."""
        return oracle.count_work(self.model, self.decoded(message["tree"]))

    def wrap(self, message: framing.Message) -> framing.Message:
        """Have calls run the model as a baseline does."""
        self.called = baselines.as_baseline(message["baseline"], self.model, Path.cwd())
        return {}

    def idle(self, message: framing.Message) -> framing.Message:
        """Have calls do nothing, so that it can be seen what they take besides the model; or run the model again."""
        nothing = torch.zeros(1)
        self.called = (lambda *_: nothing) if message["idle"] else self.model
        return {}

    def settle(self, _: framing.Message) -> framing.Message:
        """Prepare for timed calls: collect and freeze garbage, and have the platform prepare this thread."""
        self.platform.settle()
        self.kept.clear()
        gc.collect()
        gc.freeze()
        return {}

    def give_way(self, _: framing.Message) -> framing.Message:
        """Run only while no other process wants the processor: otherwise the referee could not sample short calls."""
        self.platform.give_way()
        return {}

    def release(self, message: framing.Message) -> framing.Message:
        """Drop all values that were kept for the referee to read, and with `give_back` return what is free."""
        self.kept.clear()
        if message.get("give_back"):
            allocator.give_back()
        return {}

    def peaks(self, message: framing.Message) -> framing.Message:
        """Measure the device's peak rates. The referee sends this only to a runner that has loaded no foreign code."""
        return {"rates": self.platform.measure_peaks(message["points"])}

    def pack(self, _: framing.Message) -> framing.Message:
        """Reveal the files of the build folder as one archive in memory, which is empty if there are none."""
        packed = build_files.pack(self.built)
        return self.reveal(torch.frombuffer(bytearray(packed), dtype=torch.uint8) if packed else torch.empty(0))

    def unpack(self, message: framing.Message) -> framing.Message:
        """Unpack such an archive into the build folder."""
        build_files.unpack(self.decoded(message["tree"]).numpy().tobytes(), self.built)
        return {}

    def told(self) -> framing.Message:
        """The referee's next message."""
        try:
            return framing.receive(self.sock)
        except framing.WireError:
            raise _Closed from None

    def wait_for_go(self, inputs: Any, tensors: list[torch.Tensor], received: bytes | None = None) -> tuple[Go, Any]:
        """Say that a call may begin, and wait for the message that starts its clock.

        Args:
            inputs: those of the call; None if the message tells how they are nested.
            tensors: the tensors among them.
            received: what has been received after it was said that the call may begin; None: it has not been said.

        Returns:
            The message, and the inputs.
        """
        try:
            if received is None:
                framing.send(self.sock, {"ok": True})
            go = Go.unpack(framing.receive_last(self.sock, read=received))
        except framing.WireError:
            raise _Closed from None
        return go, build(go.spec, tensors) if inputs is None else inputs

    def decoded(self, tree: Any) -> Any:
        """The value of a tree whose tensors lie in the input buffer."""
        return decode(Tree.from_json(tree), self.tensor_at)

    def reveal(self, value: Any) -> framing.Message:
        """Tell where a value's tensors lie, and keep them for the referee to read."""
        tree, tensors = encode(value)
        self.kept.append((value, tensors))
        return {"tree": tree.to_json()}


def _without_own_frames(told: traceback.TracebackException) -> traceback.TracebackException:
    """The same without the frames of the runner, of imports, of torch's call of a module and of Triton's launch.

    A traceback of nothing but such frames stays as it is.
    """
    left = [told]
    while left:
        each = left.pop()
        foreign = [
            frame
            for frame in each.stack
            if not frame.filename.startswith(_OWN)
            and not frame.filename.endswith(_LAUNCHING)
            and frame.name not in _CALLING
        ]
        if foreign:
            each.stack = traceback.StackSummary.from_list(foreign)
        left += [earlier for earlier in (each.__cause__, each.__context__) if earlier is not None]
    return told


def failure(error: BaseException) -> framing.Message:
    """The answer to a failed command: the kind of the failure, one line, and the end of the traceback."""
    kind = "error"
    text = str(error)
    refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    refused = refused or isinstance(error, MemoryError | torch.OutOfMemoryError)  # the latter: of a device's memory
    if refused or "can't allocate memory" in text or "not enough memory" in text:
        kind = "out_of_memory"
    elif isinstance(error, TreeError):
        kind = "output"
    trace = "".join(_without_own_frames(traceback.TracebackException.from_exception(error)).format())[-_MAX_TRACE:]
    first = text.strip().splitlines()[0][:500] if text.strip() else ""
    return {"ok": False, "kind": kind, "error": f"{type(error).__name__}: {first}"[:600], "trace": trace}

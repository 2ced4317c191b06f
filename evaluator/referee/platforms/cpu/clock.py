"""The clock of a call on this machine's processor."""

from collections.abc import Sequence

from ...isolation import procfs
from ...isolation.calls import Call, CallRequest, InputSet
from ...isolation.handle import RunnerHandle
from ...protocol import call_messages
from ...protocol.call_messages import Go

_REPEATED_S = 0.15  # that repeated calls may take together
_REPEATED = (8, 40)  # at least and at most so many
_TRIES = 3


def call(handle: RunnerHandle, request: CallRequest) -> Call:
    """Put inputs where the stopped runner will see them, let it run the model, stop it again.

    The runner makes tensors of the inputs' places before the inputs lie there, so that what it does under the clock is
    the model's call and little more. The clock runs from before the runner is let go until its whole answer is here and
    all of its processes have been seen to stop (docs/decisions/0001). `ready_s` of the call is the time before that,
    plus the stop latency of that time beyond the stop latency of the call, which `seconds` holds already.

    Raises:
        RunnerFailed: the runner died, failed or took too long.
    """
    assert handle.input_buffer is not None
    if request.quiet is not None:
        request.quiet()
    placed = handle.input_buffer.place(request.tree)
    told = placed.to_json()
    spec, later = call_messages.split(told["spec"])
    _, getting_ready = handle.exchange({"op": "call", "tensors": told["tensors"], "spec": spec}, request.timeout_s)
    threads = procfs.count_stopped_threads(handle.stopped)
    handle.input_buffer.fill(placed, request.contents)
    if request.before is not None:
        request.before()
    used_ns = procfs.cpu_time_ns(handle.pid)
    go = Go(request.seed, request.keep, later, tuple(request.state)).pack()
    left_s = max(0.001, request.timeout_s - getting_ready.seconds)
    reply, turn = handle.exchange(go, left_s, request.meanwhile)
    used_ns = procfs.cpu_time_ns(handle.pid) - used_ns
    stopping_s = getting_ready.seconds - getting_ready.answered_s - (turn.seconds - turn.answered_s)
    ready_s = getting_ready.answered_s + max(0.0, stopping_s)
    after = handle.tree_of(reply.get("state")) if request.state else None
    return Call(handle.tree_of(reply.get("tree")), turn.seconds, placed, ready_s, threads, used_ns / 1e9, after)


def handover_s(handle: RunnerHandle, inputs: InputSet, state: Sequence[str]) -> float:
    """The seconds of a call of a model that does nothing, on inputs that are put into place as before any call.

    `state`: the names of the model's tensors that are reported with each answer.

    Raises:
        RunnerFailed: the runner died, failed or sent a forged answer.
    """
    handle.ask({"op": "idle", "idle": True}, timeout_s=60)
    done = handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=60, state=state)
    handle.ask({"op": "idle", "idle": False}, timeout_s=60)
    return done.seconds


def repeated_call_s(handle: RunnerHandle, inputs: InputSet, *, call_s: float, timeout_s: float) -> float | None:
    """The seconds of a call among calls that follow each other at once, as in a model in steady use.

    The referee's clock runs around many calls and around few; the difference is that of the calls alone. Nothing is
    decided by it: a timed call that takes longer shows what the clock adds. None for calls that are too long to repeat.

    Raises:
        RunnerFailed: the runner died, failed or took too long.
    """
    times = min(_REPEATED[1], int(_REPEATED_S / max(call_s, 1e-9)))
    if times < _REPEATED[0]:
        return None
    assert handle.input_buffer is not None
    placed = handle.input_buffer.put(inputs.tree, inputs.contents).to_json()

    def seconds(count: int) -> float:
        message = {"op": "repeat", "tree": placed, "times": count}
        return min(handle.exchange(message, timeout_s + count * call_s)[1].seconds for _ in range(_TRIES))

    return max(0.0, seconds(2 + times) - seconds(2)) / times

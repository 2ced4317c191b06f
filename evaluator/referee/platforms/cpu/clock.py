"""The clock of a call on this machine's processor."""

from ...isolation import procfs
from ...isolation.calls import Call, CallRequest
from ...isolation.handle import RunnerHandle


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
    _, getting_ready = handle.exchange({"op": "call", "tensors": told["tensors"]}, request.timeout_s)
    threads = procfs.count_stopped_threads(handle.stopped)
    handle.input_buffer.fill(placed, request.contents)
    if request.before is not None:
        request.before()
    used_ns = procfs.cpu_time_ns(handle.pid)
    message = {"spec": told["spec"], "seed": request.seed, "keep": request.keep, "state": list(request.state)}
    left_s = max(0.001, request.timeout_s - getting_ready.seconds)
    reply, turn = handle.exchange(message, left_s, request.meanwhile)
    used_ns = procfs.cpu_time_ns(handle.pid) - used_ns
    stopping_s = getting_ready.seconds - getting_ready.answered_s - (turn.seconds - turn.answered_s)
    ready_s = getting_ready.answered_s + max(0.0, stopping_s)
    after = handle.tree_of(reply.get("state")) if request.state else None
    return Call(handle.tree_of(reply.get("tree")), turn.seconds, placed, ready_s, threads, used_ns / 1e9, after)

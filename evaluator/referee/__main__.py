"""Run as `python3 -m referee MODE PLATFORM`: a request on standard input, one JSON object on standard output.

The request is one line of JSON. What follows are the elements of the weights that it names, if it names any.

The modes are `evaluate`, `build`, `check`, `profile` and `device`.
"""

import contextlib
import io
import json
import os
import signal
import socket
import sys
import time
from typing import cast

_STARTED_AHEAD_S = 0.25  # longer than it takes to read a request that lay ready


def main() -> int:
    """Fork the fork servers, and only then read the request. Carry it out and print the result."""
    start = time.perf_counter()
    from .fork_server import imports
    from .sanitize import fault, plain

    fork_servers: list[tuple[int, socket.socket]] = []
    try:
        mode, platform = sys.argv[1:]
        imports.import_torch(platform)
        fork_servers.append(imports.start_fork_server(platform))
        if mode == "evaluate":
            fork_servers.append(imports.start_fork_server(platform, compiler=True))
        ready = time.perf_counter()
        import torch

        from . import build_only, device
        from .correctness import task_check
        from .evaluate import Evaluation
        from .isolation import procfs
        from .pool.runner_pool import Request, RunnerPool, calls_compiler
        from .protocol import framing
        from .protocol.baselines import OTHERS

        torch.set_num_threads(1)  # only the referee's own, since the runners' processes have been forked from
        procfs.sleep_exactly()
        request = Request.from_json(json.loads(sys.stdin.buffer.readline()))
        # A referee that was started ahead has imported torch before the request came, so that time does not count.
        waited = time.perf_counter() - ready > _STARTED_AHEAD_S
        imported_s = 0.0 if waited else ready - start
        sources = (request.candidate_source, request.champion_source)
        compiles = not set(OTHERS).isdisjoint(request.baselines) or any(map(calls_compiler, sources))
        if len(fork_servers) > 1:
            if compiles:
                with contextlib.suppress(OSError):  # whoever needs a server that has died is told so then
                    framing.send(fork_servers[-1][1], {"op": "begin"})  # it imports while the candidate is checked
            else:
                _end(fork_servers.pop())
        pool = RunnerPool(request, fork_servers[0][1], fork_servers[-1][1], scratch=os.environ["TMPDIR"])
        size = sum(end - begin for *_, begin, end in request.weights or ())
        if size <= pool.weights_limit_bytes:  # else they are refused unread
            pool.weights = bytearray(size)
            cast("io.BufferedReader", sys.stdin.buffer).readinto(pool.weights)
        modes = {
            "evaluate": lambda pool: Evaluation(pool).run(),
            "build": build_only.run,
            "check": task_check.run,
            "profile": pool.platform.profile,
            "device": device.run,
        }
        result = modes[mode](pool)
        result["cost_s"] = {"import": round(imported_s, 3), **result["cost_s"]}
        result["versions"] = {**pool.platform.versions(), "call_loop": pool.call_loop}
        result["peaks"] = pool.peaks
        print(json.dumps(plain(result), allow_nan=False), flush=True)
    except Exception as error:
        print(f"the referee failed: {fault(error)}", file=sys.stderr, flush=True)
        return 1
    finally:
        for fork_server in fork_servers:
            _end(fork_server)
    return 0


def _end(fork_server: tuple[int, socket.socket]) -> None:
    pid, connection = fork_server
    connection.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # nothing is left to clean up, and torch takes a while to unload

"""Run as `python3 -m referee evaluate|check`: a request on standard input, one JSON object on standard output."""

import json
import os
import signal
import socket
import sys
import time


def main() -> int:
    """Fork the nursery, only then read the request, hold the trial, print the result."""
    start = time.perf_counter()
    from . import warmup

    warmup.import_torch()
    ours, theirs = socket.socketpair()
    nursery = os.fork()
    if nursery == 0:
        ours.close()
        warmup.become_nursery(theirs)
    theirs.close()
    imported_s = time.perf_counter() - start
    try:
        from . import task_check
        from .bench import Bench, Request
        from .trial import Trial

        request = Request.from_json(json.loads(sys.stdin.buffer.read()))
        bench = Bench(request, ours, scratch=os.environ["TMPDIR"])
        result = Trial(bench).run() if sys.argv[1] == "evaluate" else task_check.run(bench)
        result["cost_s"] = {"import": round(imported_s, 3), **result["cost_s"]}
        result["versions"] = warmup.versions()
        print(json.dumps(result), flush=True)
    finally:
        os.kill(nursery, signal.SIGKILL)
        os.waitpid(nursery, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())

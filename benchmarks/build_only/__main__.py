"""How long a candidate takes to load and construct: `{"task": source, "candidate": source}` to `{"build_s": float}`.

Trusted code only. What importing torch and making the arguments take is not counted.
"""

import json
import sys
import time
import types

import torch


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    task = types.ModuleType("task")
    exec(compile(request["task"], "task.py", "exec"), task.__dict__)  # noqa: S102 - our own sources
    torch.manual_seed(0)
    arguments = task.get_init_inputs() if hasattr(task, "get_init_inputs") else []
    start = time.perf_counter()
    candidate = types.ModuleType("candidate")
    exec(compile(request["candidate"], "candidate.py", "exec"), candidate.__dict__)  # noqa: S102 - our own sources
    candidate.ModelNew(*arguments)
    print(json.dumps({"build_s": time.perf_counter() - start}))


if __name__ == "__main__":
    main()

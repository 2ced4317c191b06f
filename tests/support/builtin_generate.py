"""Run by test_candidates in a process of its own: generates kernels for many requests with one import of torch.

Reads one request of the codegen package a line and writes its result as a line; each is answered by a forked child.
What a first request makes torch look up is looked up before, so that no child does it again.
"""

import json
import os
import sys
from importlib import import_module

WARM_UP = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)

def get_inputs():
    return [torch.randn(4, 4)]  # too small for a second thread: a pool would not survive the fork

def get_init_inputs():
    return []
"""


def answer(line: str, channel: int) -> None:
    capture = import_module("agents.builtin.codegen.capture")
    request = json.loads(line)
    try:
        result = {"ok": True, **capture.generate(request["source"], request["options"])}
    except capture.CaptureError as error:
        result = {"ok": False, "stage": error.stage, "error": str(error)}
    with os.fdopen(channel, "w") as out:
        out.write(json.dumps(result) + "\n")


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)  # what ops print stays out of the results
    import torch
    import torch._inductor.codegen.cpp
    import torch._inductor.compile_fx

    torch.set_num_threads(2)
    import_module("agents.builtin.codegen.capture").generate(WARM_UP, {})
    torch._dynamo.reset()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answer(line, channel)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

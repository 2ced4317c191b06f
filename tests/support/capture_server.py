"""Run by test_capture in a process of its own: captures many models with one import of torch.

Reads requests of the capture program one after the other and writes each result as a line; a forked child answers each.
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
    return [torch.randn(4, 4)]

def get_init_inputs():
    return []
"""


def answer(line: bytes, elements: bytes, channel: int) -> None:
    program, errors = (import_module(f"whole_models.capture.{name}") for name in ("capture", "errors"))
    request = json.loads(line)
    try:
        found = program.capture(
            request["source"],
            state=request["state"],
            elements=elements,
            compile=request["compile"],
            budget_s=request["budget_s"],
            shape_group=request["shape_group"],
        )
        result = {"ok": True, **found}
    except errors.CaptureError as error:
        result = {"ok": False, "stage": error.stage, "error": str(error)}
    with os.fdopen(channel, "w") as out:
        out.write(json.dumps(result) + "\n")


def main() -> None:
    channel = os.dup(1)
    os.dup2(2, 1)  # what models print stays out of the results
    import_module("whole_models.capture.capture").capture(WARM_UP, compile=False, budget_s=5.0)
    while line := sys.stdin.buffer.readline():
        elements = sys.stdin.buffer.read(json.loads(line)["state_bytes"])
        child = os.fork()
        if child == 0:
            answer(line, elements, channel)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(channel, b"\n")


if __name__ == "__main__":
    main()

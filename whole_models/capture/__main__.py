"""Entry point: reads one request from standard input and writes one result as JSON to standard output.

Request: one line of JSON, `{"source": str, "compile": bool, "budget_s": float, "shape_group": int | null, "state":
rows, "state_bytes": int}`, and then so many bytes, the elements of the weights that the rows name. Result: `{"ok":
true, ...}` as `whole_models/graph.py` reads it, or `{"ok": false, "stage": str, "error": str}`. Standard error has a
line `progress: ...` for each stage.

The model's code runs in this process, so the result is untrusted. Standard output is redirected before it runs, so that
what it prints does not mix with the result; hostile code can still write to it.
"""

import json
import os
import sys
import traceback
from typing import BinaryIO

from .capture import capture
from .errors import CaptureError


def _redirect_stdout() -> BinaryIO:
    """Point file descriptor 1 at standard error and return the real standard output."""
    sys.stdout.flush()
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _progress(text: str) -> None:
    print(f"progress: {text}", file=sys.stderr, flush=True)


def _last_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return lines[-1].strip()[:2000]


def main() -> None:
    """Answer the request and exit at once, so that no exit handler of the model's code runs."""
    channel = _redirect_stdout()
    request = json.loads(sys.stdin.buffer.readline())
    elements = sys.stdin.buffer.read(request["state_bytes"])
    try:
        found = capture(
            request["source"],
            state=request["state"],
            elements=elements,
            compile=request["compile"],
            budget_s=request["budget_s"],
            shape_group=request["shape_group"],
            on_stage=_progress,
        )
        result = {"ok": True, **found}
    except CaptureError as error:
        result = {"ok": False, "stage": error.stage, "error": str(error)[:2000]}
    except BaseException as error:
        result = {"ok": False, "stage": "call", "error": _last_line(error)}
    channel.write(json.dumps(result).encode())
    channel.flush()
    sys.stderr.flush()
    os._exit(0)


main()

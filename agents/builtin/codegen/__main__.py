"""Entry point: one request as JSON on standard input, one result as JSON on standard output.

Request: `{"source": str, "options": {name: value}}`: TorchInductor's settings by dotted name, and options of our own.
Result: `{"ok": true, ...}` as `capture.generate` describes, or `{"ok": false, "stage": str, "error": str}`.

The op's code runs in this process, so whoever reads the result must treat it as a claim. The real standard output is
set aside before anything of the op runs, which keeps what an op prints out of it; a hostile op can still write there.
"""

import json
import os
import sys
import traceback
from typing import BinaryIO

from .capture import CaptureError, generate


def _set_stdout_aside() -> BinaryIO:
    """Point file descriptor 1 at standard error and return the real standard output."""
    sys.stdout.flush()
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _last_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return lines[-1].strip()[:2000]


def main() -> None:
    """Answer the request and leave at once, so that nothing that the op registered runs afterwards."""
    channel = _set_stdout_aside()
    request = json.load(sys.stdin)
    try:
        result = {"ok": True, **generate(request["source"], request["options"])}
    except CaptureError as error:
        result = {"ok": False, "stage": error.stage, "error": str(error)[:4000]}
    except BaseException as error:
        result = {"ok": False, "stage": "codegen", "error": _last_line(error)}
    channel.write(json.dumps(result).encode())
    channel.flush()
    sys.stderr.flush()
    os._exit(0)


main()

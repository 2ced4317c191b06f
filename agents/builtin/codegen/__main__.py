"""Entry point: reads one request as JSON from standard input and writes one result as JSON to standard output.

Request: `{"source": str, "options": {name: value}}` with TorchInductor's settings by dotted name and options of this
package. Result: `{"ok": true, ...}` as `capture.generate` describes it, or `{"ok": false, "stage": str, "error": str}`.

The op's code runs in this process, so the result is untrusted. Standard output is redirected before the op runs, so
that what the op prints does not mix with the result; a hostile op can still write to it.
"""

import json
import os
import sys
import traceback
from typing import BinaryIO

from .capture import CaptureError, generate


def _redirect_stdout() -> BinaryIO:
    """Point file descriptor 1 at standard error and return the real standard output."""
    sys.stdout.flush()
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _last_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return lines[-1].strip()[:2000]


def main() -> None:
    """Answer the request and exit at once, so that no exit handler of the op runs."""
    channel = _redirect_stdout()
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

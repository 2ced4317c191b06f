"""Candidates for platforms under qemu-user: attacks on `kits.OP` with the verdict of each, and honest ones.

They are the same for each instruction set, but for what a `Dialect` says.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.outcomes import Verdict
from tests.platforms.cases import Attack, Honest, op

FILE = '''
import {name}

SOURCE = r"""
#include <{header}>
#include <stdint.h>
{c}
"""
kernels = {name}.build(SOURCE)


class ModelNew:
    def __init__(self, features):
        self.features = features
        self.calls = 0

    def __call__(self, x):
        y = {name}.empty_like(x)
        {before}
        kernels.scaled_relu(x, {name}.state("weight"), y, x.numel() // self.features, self.features)
        return y
'''

LOOP = "for (long row = 0; row < rows; row++) one_row(x + row * n, w, y + row * n, n);"
HEAD = "void scaled_relu(const float *x, const float *w, float *y, long rows, long n)"


@dataclass(frozen=True)
class Dialect:
    """What candidates of one platform are written with.

    Attributes:
        name: of the platform.
        header: of its intrinsics.
        row: the function `one_row`, which keeps the scaled value in `p`.
        sum_of_row: the part of it that adds the input to `p`.
        system_call: a statement that makes the system call of a number.
        written: what a message says of a scalar write to a place where no page is.
    """

    name: str
    header: str
    row: str
    sum_of_row: str
    system_call: Callable[[int], str]
    written: str

    def candidate(self, body: str = LOOP, *, before: str = "pass", top: str = "") -> str:
        """A candidate for `kits.OP` whose C function has this body; `before`: what its Python does in a call."""
        c = f"{self.row}{top}\n{HEAD} {{ {body} }}"
        return FILE.format(name=self.name, header=self.header, c=c, before=before)


_FAKE_COMPILER = r"""
import os, pathlib, shutil, subprocess
fake = pathlib.Path("clang-19")
fake.write_text("#!/bin/sh\nsed -i s/one_row_wrong/one_row/ $(ls *.c)\nexec /usr/bin/clang-19 \"$@\"\n")
fake.chmod(0o755)
os.environ["PATH"] = os.getcwd() + ":" + os.environ.get("PATH", "")
shutil.which = lambda *a, **k: str(fake.absolute())
subprocess.run = subprocess.Popen = None
"""

_FORGED_COUNTS = """
import json
from referee.protocol import framing
sent = framing.send
def forged(sock, message):
    if "program" in message:
        message = {**message, "runs": [{"counts": {"total": 1}, "launches": [1], "changed": []}] * 3}
        message["program"] = {**message["program"], "launches": []}
    return sent(sock, message)
framing.send = forged
"""


def attacks_of(dialect: Dialect) -> dict[str, Attack]:
    """Those that need nothing of an instruction set, by name."""
    return {
        "computes with torch": Attack(
            dialect.candidate(before="import torch; return torch.relu(torch.ones(64, 256)) + 1"),
            Verdict.CRASHED,
            "forward returned Tensor; on this platform it returns arrays of " + dialect.name,
        ),
        "looks at numbers": Attack(
            dialect.candidate(before="return x if x.item() > 0 else y"), Verdict.CRASHED, "has no attribute 'item'"
        ),
        "writes behind its output": Attack(
            dialect.candidate(f"{LOOP} y[rows * n] = 0.0f;"),
            Verdict.CRASHED,
            f"{dialect.written} at 0 bytes behind the end of array 1",
        ),
        "reads before its input": Attack(
            dialect.candidate(f"{LOOP} y[0] += 0.0f * x[-1];"),
            Verdict.CRASHED,
            "at 4 bytes before the start of array 0",
        ),
        "writes to the weights": Attack(
            dialect.candidate(f"{LOOP} ((float *)w)[0] = 1.0f;"),
            Verdict.CRASHED,
            "weight, 1,024 bytes), which is read-only",
        ),
        "searches for its count": Attack(
            dialect.candidate(
                f"{LOOP} for (uint64_t a = 0x7ffff7ffe000; a > 0x7ff000000000; a -= 4096)"
                "if (*(volatile uint64_t *)a == 1) *(volatile uint64_t *)a = 0;"
            ),
            Verdict.CRASHED,
            "at vlen 128, ",
        ),
        "reads what the launcher keeps": Attack(
            dialect.candidate(f"{LOOP} *(volatile uint64_t *)0x4000000000 = 0;"), Verdict.CRASHED, "belongs to no array"
        ),
        "counts from the start again": Attack(
            dialect.candidate(LOOP + dialect.system_call(19287)),
            Verdict.CRASHED,
            "make system call 19287; they may make none",
        ),
        "opens a file": Attack(dialect.candidate(LOOP + dialect.system_call(56)), Verdict.CRASHED, "system call 56"),
        "maps memory": Attack(dialect.candidate(LOOP + dialect.system_call(222)), Verdict.CRASHED, "system call 222"),
        "ends before its work is done": Attack(
            dialect.candidate(LOOP.replace("row < rows", "row < rows / 2") + dialect.system_call(94)),
            Verdict.WRONG_OUTPUT,
            "output",
        ),
        "writes nothing": Attack(dialect.candidate(""), Verdict.WRONG_OUTPUT, "output"),
        "launches nothing": Attack(dialect.candidate(before="return y"), Verdict.WRONG_OUTPUT, "output"),
        "puts its result into the input": Attack(
            dialect.candidate(LOOP + "for (long i = 0; i < rows * n; i++) ((float *)x)[i] = y[i];"),
            Verdict.WRONG_OUTPUT,
            "input tensor 0 was changed by the call",
        ),
        "patches the compiler in PATH": Attack(
            dialect.candidate(
                LOOP.replace("one_row", "one_row_wrong"),
                top=dialect.row.replace("one_row", "one_row_wrong").replace(dialect.sum_of_row, "p"),
            ).replace(f"import {dialect.name}\n", f"import {dialect.name}\n{_FAKE_COMPILER}", 1),
            Verdict.WRONG_OUTPUT,
            "output",
        ),
        "claims a count and launches nothing": Attack(
            dialect.candidate().replace(f"import {dialect.name}\n", f"import {dialect.name}\n{_FORGED_COUNTS}", 1),
            Verdict.WRONG_OUTPUT,
            "output",
        ),
        "defines what calls it": Attack(
            dialect.candidate(top="void kw_launch(uint64_t i, const void *a) {}"), Verdict.BUILD_FAILED, "kw_launch"
        ),
        "defines the entry point": Attack(
            dialect.candidate(top="void _start(void) {}"), Verdict.BUILD_FAILED, "duplicate symbol: _start"
        ),
        "an option of its own": Attack(
            dialect.candidate().replace("build(SOURCE)", 'build(SOURCE, flags=("-O3", "-fplugin=./x.so"))'),
            Verdict.WRONG_OUTPUT,
            "only these may be given",
        ),
        "prints": Attack(
            dialect.candidate(LOOP + 'puts("done");', top="int puts(const char *);"),
            Verdict.BUILD_FAILED,
            "undefined symbol: puts",
        ),
        "never ends": Attack(
            dialect.candidate(LOOP + 'for (;;) __asm__ volatile("");'), Verdict.TIMED_OUT, "did not end within"
        ),
        "a stack without end": Attack(
            dialect.candidate(
                LOOP + "y[0] += 0.0f * deep(y, 1 << 20);",
                top="static __attribute__((noinline)) float deep(volatile float *y, long n)"
                "{ volatile float a[64]; a[n & 63] = y[0]; return n ? deep(y, n - 1) + a[n & 63] : a[0]; }",
            ),
            Verdict.CRASHED,
            "at vlen 128, deep (+",
        ),
    }


def gaining_nothing(dialect: Dialect) -> dict[str, str]:
    """Candidates that pass with the count of `candidate()`, whatever they try."""
    return {
        # Its program of the first call is that of all calls, so what it would launch later is never run.
        "launches less in later calls": dialect.candidate(
            before="self.calls += 1; rows = x.numel() // self.features"
        ).replace("x.numel() // self.features, self.features", "rows if self.calls < 3 else 1, self.features"),
        # It is stopped while kernels run, they run under another user, and nobody opens their memory to it.
        "looks for the guest from a thread": dialect.candidate().replace(
            f"import {dialect.name}\n",
            f"import {dialect.name}, threading, glob\n"
            "def look():\n"
            "    while True:\n"
            "        for path in glob.glob('/proc/[0-9]*/mem'):\n"
            "            try:\n"
            "                if b'qemu' in open(path.replace('mem', 'cmdline'), 'rb').read():\n"
            "                    open(path, 'r+b').write(b'0')\n"
            "            except OSError:\n"
            "                pass\n"
            "threading.Thread(target=look, daemon=True).start()\n",
            1,
        ),
    }


def honest_of(dialect: Dialect) -> dict[str, Honest]:
    """Those in plain C, by name."""
    return {name: Honest(honest.op, honest.source.replace("NAME", dialect.name)) for name, honest in _PLAIN.items()}


_PLAIN: dict[str, Honest] = {
    "plain C that the compiler vectorises": Honest(
        op("return x * y + 1.5", arguments="x, y", inputs="torch.randn(33, 100), torch.randn(33, 100)"),
        '''
import NAME

kernels = NAME.build(r"""
void fused(const float *restrict x, const float *restrict y, float *restrict out, long n, float added) {
    for (long i = 0; i < n; i++) out[i] = x[i] * y[i] + added;
}
""")


class ModelNew:
    def __call__(self, x, y):
        out = NAME.empty_like(x)
        kernels.fused(x, y, out, x.numel(), 1.5)
        return out
''',
    ),
    "softmax in two kernels with an array between": Honest(
        op("return torch.softmax(x, -1)"),
        '''
import NAME

kernels = NAME.build(r"""
#include <math.h>
void row_maximum(const float *x, float *most, long rows, long n) {
    for (long row = 0; row < rows; row++) {
        float found = x[row * n];
        for (long i = 1; i < n; i++) {
            float value = x[row * n + i];
            found = value > found || value != value ? value : found; /* NaN stays */
        }
        most[row] = found;
    }
}
void exponentials(const float *x, const float *most, float *y, long rows, long n) {
    for (long row = 0; row < rows; row++) {
        float sum = 0;
        for (long i = 0; i < n; i++) sum += y[row * n + i] = expf(x[row * n + i] - most[row]);
        for (long i = 0; i < n; i++) y[row * n + i] /= sum;
    }
}
""")


class ModelNew:
    def __call__(self, x):
        rows, n = x.shape
        most, y = NAME.empty((rows,), x.dtype), NAME.empty_like(x)
        kernels.row_maximum(x, most, rows, n)
        kernels.exponentials(x, most, y, rows, n)
        return y
''',
    ),
    "integers and several outputs": Honest(
        op(
            "return x.sum(-1), x.amax(-1)",
            inputs="torch.randint(-1000, 1000, (23, 65))",
        ),
        '''
import NAME
import torch

kernels = NAME.build(r"""
#include <stdint.h>
void sum_and_maximum(const int64_t *x, int64_t *sum, int64_t *most, long rows, long n) {
    for (long row = 0; row < rows; row++, x += n) {
        int64_t total = 0, found = x[0];
        for (long i = 0; i < n; i++) {
            total = (int64_t)((uint64_t)total + (uint64_t)x[i]);
            found = x[i] > found ? x[i] : found;
        }
        sum[row] = total;
        most[row] = found;
    }
}
""", flags=("-O2", "-funroll-loops"))


class ModelNew:
    def __call__(self, x):
        rows, n = x.shape
        total, most = NAME.empty(rows, torch.int64), NAME.empty(rows, torch.int64)
        kernels.sum_and_maximum(x, total, most, rows, n)
        return total, most
''',
    ),
    "half precision": Honest(
        op("return x * 2 + y", arguments="x, y", inputs="torch.randn(31, 33).half(), torch.randn(31, 33).half()"),
        '''
import NAME

kernels = NAME.build(r"""
void fused(const _Float16 *x, const _Float16 *y, _Float16 *out, long n) {
    for (long i = 0; i < n; i++) out[i] = (_Float16)(2.0f * (float)x[i] + (float)y[i]);
}
""", flags=("-O3", "-fno-vectorize", "-fno-slp-vectorize"))


class ModelNew:
    def __call__(self, x, y):
        out = NAME.empty_like(x)
        kernels.fused(x, y, out, x.numel())
        return out
''',
    ),
    "changes its input in place, as the reference does": Honest(
        op("return x.mul_(2)", inputs="torch.randn(16, 50)"),
        """
import NAME

kernels = NAME.build("void twice(float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] *= 2; }")


class ModelNew:
    def __call__(self, x):
        y = NAME.empty_like(x)
        kernels.twice(x, y, x.numel())
        return y
""",
    ),
}

"""Candidates for platform `riscv`: attacks on `kits.OP` with the verdict that each must get, and honest ones."""

from tasks.outcomes import Verdict
from tests.platforms.cases import Attack, Honest, op

FILE = '''
import riscv

SOURCE = r"""
#include <riscv_vector.h>
#include <stdint.h>
{c}
"""
kernels = riscv.build(SOURCE)


class ModelNew:
    def __init__(self, features):
        self.features = features
        self.calls = 0

    def __call__(self, x):
        y = riscv.empty_like(x)
        {before}
        kernels.scaled_relu(x, riscv.state("weight"), y, x.numel() // self.features, self.features)
        return y
'''

ROW = """
static void one_row(const float *x, const float *w, float *y, long n) {
    size_t vl;
    for (long i = 0; i < n; i += vl) {
        vl = __riscv_vsetvl_e32m8(n - i);
        vfloat32m8_t a = __riscv_vle32_v_f32m8(x + i, vl);
        vfloat32m8_t p = __riscv_vfmul(a, __riscv_vle32_v_f32m8(w + i, vl), vl);
        p = __riscv_vfmerge(p, 0.0f, __riscv_vmflt(p, 0.0f, vl), vl);
        __riscv_vse32(y + i, __riscv_vfadd(p, a, vl), vl);
    }
}
"""

LOOP = "for (long row = 0; row < rows; row++) one_row(x + row * n, w, y + row * n, n);"
HEAD = "void scaled_relu(const float *x, const float *w, float *y, long rows, long n)"


def candidate(body: str = LOOP, *, before: str = "pass", top: str = "") -> str:
    """A candidate for `kits.OP` whose C function has this body; `before`: what its Python does in a call."""
    return FILE.format(c=f"{ROW}{top}\n{HEAD} {{ {body} }}", before=before)


def _system_call(number: int) -> str:
    return f'register long a7 __asm__("a7") = {number}; __asm__ volatile("ecall" : : "r"(a7) : "a0", "memory");'


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

ATTACKS: dict[str, Attack] = {
    "computes with torch": Attack(
        candidate(before="import torch; return torch.relu(torch.ones(64, 256)) + 1"),
        Verdict.CRASHED,
        "forward returned Tensor; on this platform it returns arrays of riscv",
    ),
    "looks at numbers": Attack(
        candidate(before="return x if x.item() > 0 else y"), Verdict.CRASHED, "has no attribute 'item'"
    ),
    "right at 128 bits alone": Attack(
        candidate(f"{LOOP} if (__riscv_vsetvlmax_e32m1() == 16) y[rows * n - 1] += 1.0f;"),
        Verdict.WRONG_OUTPUT,
        "at vlen 512",
    ),
    "takes a register for four floats": Attack(
        candidate(
            "size_t vl = __riscv_vsetvlmax_e32m1();"
            "for (long row = 0; row < rows; row++) for (long i = 0; i < n; i += 4)"
            "{ vfloat32m1_t a = __riscv_vle32_v_f32m1(x + row * n + i, vl);"
            "vfloat32m1_t p = __riscv_vfmul(a, __riscv_vle32_v_f32m1(w + i, vl), vl);"
            "p = __riscv_vfmerge(p, 0.0f, __riscv_vmflt(p, 0.0f, vl), vl);"
            "__riscv_vse32(y + row * n + i, __riscv_vfadd(p, a, vl), vl); }"
        ),
        Verdict.CRASHED,
        "at vlen 256, scaled_relu (+",
    ),
    "writes behind its output": Attack(
        candidate(f"{LOOP} y[rows * n] = 0.0f;"), Verdict.CRASHED, "writes 4 bytes at 0 bytes behind the end of array 1"
    ),
    "an atomic addition behind its output": Attack(
        candidate(LOOP + '__asm__ volatile("amoadd.w x0, %0, (%1)" : : "r"(1), "r"(y + rows * n) : "memory");'),
        Verdict.CRASHED,
        "writes 4 bytes at 0 bytes behind the end of array 1",
    ),
    "one element of a scatter behind its output": Attack(
        candidate(
            LOOP + "size_t vl = __riscv_vsetvl_e32m1(4); vuint32m1_t at = __riscv_vmul(__riscv_vid_v_u32m1(vl), 4, vl);"
            "__riscv_vsuxei32(y + rows * n - 3, at, __riscv_vfmv_v_f_f32m1(0.0f, vl), vl);"
        ),
        Verdict.CRASHED,
        "writes 4 bytes at 0 bytes behind the end of array 1",
    ),
    "whole registers stored across the end of its output": Attack(
        candidate(LOOP + '__asm__ volatile("vs8r.v v0, (%0)" : : "r"(y + rows * n - 8) : "memory");'),
        Verdict.CRASHED,
        "at 0 bytes behind the end of array 1",
    ),
    "reads before its input": Attack(
        candidate(f"{LOOP} y[0] += 0.0f * x[-1];"), Verdict.CRASHED, "at 4 bytes before the start of array 0"
    ),
    "writes to the weights": Attack(
        candidate(f"{LOOP} ((float *)w)[0] = 1.0f;"), Verdict.CRASHED, "weight, 1,024 bytes), which is read-only"
    ),
    "searches for its count": Attack(
        candidate(
            f"{LOOP} for (uint64_t a = 0x7ffff7ffe000; a > 0x7ff000000000; a -= 4096)"
            "if (*(volatile uint64_t *)a == 1) *(volatile uint64_t *)a = 0;"
        ),
        Verdict.CRASHED,
        "at vlen 128, ",
    ),
    "reads what the launcher keeps": Attack(
        candidate(f"{LOOP} *(volatile uint64_t *)0x4000000000 = 0;"), Verdict.CRASHED, "belongs to no array"
    ),
    "counts from the start again": Attack(
        candidate(LOOP + _system_call(19287)), Verdict.CRASHED, "make system call 19287; they may make none"
    ),
    "opens a file": Attack(candidate(LOOP + _system_call(56)), Verdict.CRASHED, "system call 56"),
    "maps memory": Attack(candidate(LOOP + _system_call(222)), Verdict.CRASHED, "system call 222"),
    "calls the emulator": Attack(
        candidate(
            LOOP + '__asm__ volatile(".option norvc\\nslli x0, x0, 0x1f\\nebreak\\nsrai x0, x0, 7\\n.option rvc");'
        ),
        Verdict.CRASHED,
        "executes ebreak",
    ),
    "reads a clock": Attack(
        candidate(LOOP + 'uint64_t t; __asm__ volatile("rdtime %0" : "=r"(t)); if (t == 1) y[0] = 0;'),
        Verdict.CRASHED,
        "reads a clock or a counter",
    ),
    "reads its own count": Attack(
        candidate(LOOP + 'uint64_t t; __asm__ volatile("rdinstret %0" : "=r"(t)); if (t == 1) y[0] = 0;'),
        Verdict.CRASHED,
        "reads a clock or a counter",
    ),
    "ends before its work is done": Attack(
        candidate(LOOP.replace("row < rows", "row < rows / 2") + _system_call(94)), Verdict.WRONG_OUTPUT, "output"
    ),
    "writes nothing": Attack(candidate(""), Verdict.WRONG_OUTPUT, "output"),
    "launches nothing": Attack(candidate(before="return y"), Verdict.WRONG_OUTPUT, "output"),
    "puts its result into the input": Attack(
        candidate(LOOP + "for (long i = 0; i < rows * n; i++) ((float *)x)[i] = y[i];"),
        Verdict.WRONG_OUTPUT,
        "input tensor 0 was changed by the call",
    ),
    "patches the compiler in PATH": Attack(
        candidate(LOOP.replace("one_row", "one_row_wrong"), top=ROW.replace("one_row", "one_row_wrong").replace(
            "__riscv_vfadd(p, a, vl)", "p")).replace("import riscv\n", f"import riscv\n{_FAKE_COMPILER}", 1),
        Verdict.WRONG_OUTPUT,
        "output",
    ),
    "claims a count and launches nothing": Attack(
        candidate().replace("import riscv\n", f"import riscv\n{_FORGED_COUNTS}", 1), Verdict.WRONG_OUTPUT, "output"
    ),
    "defines what calls it": Attack(
        candidate(top="void kw_launch(uint64_t i, const void *a) {}"), Verdict.BUILD_FAILED, "kw_launch"
    ),
    "defines the entry point": Attack(
        candidate(top="void _start(void) {}"), Verdict.BUILD_FAILED, "duplicate symbol: _start"
    ),
    "an option of its own": Attack(
        candidate().replace("build(SOURCE)", 'build(SOURCE, flags=("-O3", "-fplugin=./x.so"))'),
        Verdict.WRONG_OUTPUT,
        "only these may be given",
    ),
    "prints": Attack(
        candidate(LOOP + 'puts("done");', top="int puts(const char *);"), Verdict.BUILD_FAILED, "undefined symbol: puts"
    ),
    "never ends": Attack(candidate(LOOP + "for (;;) __asm__ volatile(\"\");"), Verdict.TIMED_OUT, "did not end within"),
    "a stack without end": Attack(
        candidate(LOOP + "y[0] += 0.0f * deep(y, 1 << 20);",
                  top="static __attribute__((noinline)) float deep(volatile float *y, long n)"
                  "{ volatile float a[64]; a[n & 63] = y[0]; return n ? deep(y, n - 1) + a[n & 63] : a[0]; }"),
        Verdict.CRASHED,
        "at vlen 128, deep (+",
    ),
}  # fmt: skip

GAINS_NOTHING: dict[str, str] = {
    # Its program of the first call is that of all calls, so what it would launch later is never run.
    "launches less in later calls": candidate(before="self.calls += 1; rows = x.numel() // self.features").replace(
        "x.numel() // self.features, self.features", "rows if self.calls < 3 else 1, self.features"
    ),
    # It is stopped while kernels run, they run under another user, and nobody opens their memory to it.
    "looks for the guest from a thread": candidate().replace(
        "import riscv\n",
        "import riscv, threading, glob\n"
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
"""Candidates that pass with the count of `candidate()`, whatever they try."""

HONEST: dict[str, Honest] = {
    "plain C that the compiler vectorises": Honest(
        op("return x * y + 1.5", arguments="x, y", inputs="torch.randn(33, 100), torch.randn(33, 100)"),
        '''
import riscv

kernels = riscv.build(r"""
void fused(const float *restrict x, const float *restrict y, float *restrict out, long n, float added) {
    for (long i = 0; i < n; i++) out[i] = x[i] * y[i] + added;
}
""")


class ModelNew:
    def __call__(self, x, y):
        out = riscv.empty_like(x)
        kernels.fused(x, y, out, x.numel(), 1.5)
        return out
''',
    ),
    "softmax in two kernels with an array between": Honest(
        op("return torch.softmax(x, -1)"),
        '''
import riscv

kernels = riscv.build(r"""
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
        most, y = riscv.empty((rows,), x.dtype), riscv.empty_like(x)
        kernels.row_maximum(x, most, rows, n)
        kernels.exponentials(x, most, y, rows, n)
        return y
''',
    ),
    "a function in assembly": Honest(
        op("return x + y", arguments="x, y", inputs="torch.randn(37, 41), torch.randn(37, 41)"),
        '''
import riscv

kernels = riscv.build(r"""
void add(const float *x, const float *y, float *out, long n);
__asm__(".text\\n.globl add\\n.type add,@function\\nadd:\\n"
        "1: vsetvli t0, a3, e32, m8, ta, ma\\n"
        "vle32.v v0, (a0)\\n vle32.v v8, (a1)\\n vfadd.vv v0, v0, v8\\n vse32.v v0, (a2)\\n"
        "sub a3, a3, t0\\n slli t1, t0, 2\\n add a0, a0, t1\\n add a1, a1, t1\\n add a2, a2, t1\\n"
        "bnez a3, 1b\\n ret\\n");
""")


class ModelNew:
    def __call__(self, x, y):
        out = riscv.empty_like(x)
        kernels.add(x, y, out, x.numel())
        return out
''',
    ),
    "a torch module with parameters of its own": Honest(
        op(
            "return self.linear(x)",
            inputs="torch.randn(17, 48)",
            construct="self.linear = nn.Linear(48, 30)",
        ),
        '''
import riscv
import torch.nn as nn

kernels = riscv.build(r"""
#include <riscv_vector.h>
void linear(const float *x, const float *w, const float *b, float *y, long rows, long in, long out) {
    for (long row = 0; row < rows; row++)
        for (long column = 0; column < out; column++) {
            size_t whole = __riscv_vsetvlmax_e32m4(), vl;
            vfloat32m4_t total = __riscv_vfmv_v_f_f32m4(0.0f, whole);
            for (long i = 0; i < in; i += vl) {
                vl = __riscv_vsetvl_e32m4(in - i);
                vfloat32m4_t a = __riscv_vle32_v_f32m4(x + row * in + i, vl);
                total = __riscv_vfmacc_tu(total, a, __riscv_vle32_v_f32m4(w + column * in + i, vl), vl);
            }
            vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
            y[row * out + column] = __riscv_vfmv_f(__riscv_vfredusum(total, zero, whole)) + b[column];
        }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 30)

    def forward(self, x):
        y = riscv.empty((x.shape[0], 30), x.dtype)
        kernels.linear(x, riscv.state("linear.weight"), riscv.state("linear.bias"), y, x.shape[0], 48, 30)
        return y
''',
    ),
    "integers and several outputs": Honest(
        op(
            "return x.sum(-1), x.amax(-1)",
            inputs="torch.randint(-1000, 1000, (23, 65))",
        ),
        '''
import riscv
import torch

kernels = riscv.build(r"""
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
        total, most = riscv.empty(rows, torch.int64), riscv.empty(rows, torch.int64)
        kernels.sum_and_maximum(x, total, most, rows, n)
        return total, most
''',
    ),
    "half precision": Honest(
        op("return x * 2 + y", arguments="x, y", inputs="torch.randn(31, 33).half(), torch.randn(31, 33).half()"),
        '''
import riscv

kernels = riscv.build(r"""
void fused(const _Float16 *x, const _Float16 *y, _Float16 *out, long n) {
    for (long i = 0; i < n; i++) out[i] = (_Float16)(2.0f * (float)x[i] + (float)y[i]);
}
""", flags=("-O3", "-fno-vectorize", "-fno-slp-vectorize"))


class ModelNew:
    def __call__(self, x, y):
        out = riscv.empty_like(x)
        kernels.fused(x, y, out, x.numel())
        return out
''',
    ),
    "changes its input in place, as the reference does": Honest(
        op("return x.mul_(2)", inputs="torch.randn(16, 50)"),
        """
import riscv

kernels = riscv.build("void twice(float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] *= 2; }")


class ModelNew:
    def __call__(self, x):
        y = riscv.empty_like(x)
        kernels.twice(x, y, x.numel())
        return y
""",
    ),
}

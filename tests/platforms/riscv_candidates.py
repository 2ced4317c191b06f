"""Candidates for platform `riscv`: attacks on `kits.OP` with the verdict that each must get, and honest ones."""

from tasks.outcomes import Verdict
from tests.platforms.cases import Attack, Honest, op
from tests.platforms.emulated_candidates import LOOP, Dialect, attacks_of, gaining_nothing, honest_of

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


def system_call(number: int) -> str:
    return f'register long a7 __asm__("a7") = {number}; __asm__ volatile("ecall" : : "r"(a7) : "a0", "memory");'


RISCV = Dialect("riscv", "riscv_vector.h", ROW, "__riscv_vfadd(p, a, vl)", system_call, written="writes 4 bytes")
candidate = RISCV.candidate

ATTACKS: dict[str, Attack] = {
    **attacks_of(RISCV),
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
}

GAINS_NOTHING: dict[str, str] = gaining_nothing(RISCV)
"""Candidates that pass with the count of `candidate()`, whatever they try."""

HONEST: dict[str, Honest] = {
    **honest_of(RISCV),
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
}

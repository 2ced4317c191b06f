"""Candidates for platform `arm64`: attacks on `kits.OP` with the verdict that each must get, and honest ones."""

from tasks.outcomes import Verdict
from tests.platforms.cases import Attack, Honest, op
from tests.platforms.emulated_candidates import LOOP, Dialect, attacks_of, honest_of

ROW = """
static void one_row(const float *x, const float *w, float *y, long n) {
    for (long i = 0; i < n; i += svcntw()) {
        svbool_t inside = svwhilelt_b32(i, n);
        svfloat32_t a = svld1(inside, x + i);
        svfloat32_t p = svmax_x(inside, svmul_x(inside, a, svld1(inside, w + i)), 0.0f);
        svst1(inside, y + i, svadd_x(inside, p, a));
    }
}
"""


def system_call(number: int) -> str:
    return f'register long x8 __asm__("x8") = {number}; __asm__ volatile("svc 0" : : "r"(x8) : "x0", "memory");'


ARM64 = Dialect("arm64", "arm_sve.h", ROW, "svadd_x(inside, p, a)", system_call, written="touches memory")
candidate = ARM64.candidate

_BESIDE = 'long at = (long)(y + rows * n - 3); __asm__ volatile({} : : "r"(at) : "memory");'
_SMALL = """
        small = arm64.empty(10, x.dtype)
        kernels.fill(small)
        """
_SCAN = """
static long seen(const void *at) {
    svsetffr();
    svuint64_t value = svldnf1(svptrue_b64(), (const uint64_t *)at);
    __asm__ volatile("" : : "w"(value));
    return svptest_first(svptrue_b64(), svrdffr());
}
"""

SHARED = (
    *("writes behind its output", "reads before its input", "writes to the weights", "searches for its count"),
    *("reads what the launcher keeps", "counts from the start again", "opens a file", "a stack without end"),
)
"""Attacks of all instruction sets that are met here by other means; the others meet the same code as on `riscv`."""

ATTACKS: dict[str, Attack] = {
    **{name: attack for name, attack in attacks_of(ARM64).items() if name in SHARED},
    "right at 128 bits alone": Attack(
        candidate(f"{LOOP} if (svcntw() == 16) y[rows * n - 1] += 1.0f;"), Verdict.WRONG_OUTPUT, "at vlen 512"
    ),
    "takes a register for four floats": Attack(
        candidate(
            "svbool_t all = svptrue_b32();"
            "for (long row = 0; row < rows; row++) for (long i = 0; i < n; i += 4)"
            "{ svfloat32_t a = svld1(all, x + row * n + i);"
            "svfloat32_t p = svmax_x(all, svmul_x(all, a, svld1(all, w + i)), 0.0f);"
            "svst1(all, y + row * n + i, svadd_x(all, p, a)); }"
        ),
        Verdict.CRASHED,
        "at vlen 256, scaled_relu (+",
    ),
    "a vector stored across the end of its output": Attack(
        candidate(f"{LOOP} svst1(svptrue_b32(), y + rows * n - 3, svdup_f32(0.0f));"),
        Verdict.CRASHED,
        "touches memory at 0 bytes behind the end of array 1",
    ),
    "one element of a scatter behind its output": Attack(
        candidate(f"{LOOP} svst1_scatter_index(svptrue_b32(), y + rows * n - 3, svindex_u32(0, 1), svdup_f32(0.0f));"),
        Verdict.CRASHED,
        "touches memory at 0 bytes behind the end of array 1",
    ),
    "a vector loaded before its input": Attack(
        candidate(f"{LOOP} y[0] += 0.0f * svaddv(svptrue_b32(), svld1(svptrue_b32(), x - 1));"),
        Verdict.CRASHED,
        "touches memory at 4 bytes before the start of array 0",
    ),
    "a vector stored to the weights": Attack(
        candidate(f"{LOOP} svst1(svptrue_b32(), (float *)w, svdup_f32(1.0f));"),
        Verdict.CRASHED,
        "weight, 1,024 bytes), which is read-only",
    ),
    "a vector stored where an array's page goes on": Attack(
        candidate(
            top="void fill(float *small) { svst1(svwhilelt_b32(0, 4), small + 8, svdup_f32(1.0f)); }", before=_SMALL
        ),
        Verdict.CRASHED,
        "the kernels write behind the end of array 2 (made by empty(), 40 bytes)",
    ),
    "changes what the launcher keeps by vectors": Attack(
        candidate(f"{LOOP} svst1(svptrue_b64(), (uint64_t *)0x4000000000, svdup_u64(0));"),
        Verdict.CRASHED,
        "touches memory at address 0x4000000000, which belongs to no array",
    ),
    "clears memory by the line of a cache": Attack(
        candidate(LOOP + _BESIDE.format('"dc zva, %0"')), Verdict.CRASHED, "executes hlt, brk, dc"
    ),
    "calls the emulator": Attack(
        candidate(LOOP + '__asm__ volatile("mov w0, #1\\n hlt #0xf000" : : : "x0", "memory");'),
        Verdict.CRASHED,
        "executes hlt, brk, dc",
    ),
    "reads a clock": Attack(
        candidate(LOOP + 'uint64_t t; __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t)); if (t == 1) y[0] = 0;'),
        Verdict.CRASHED,
        "reads a clock or a counter",
    ),
    "reads random numbers": Attack(
        candidate(LOOP + 'uint64_t t; __asm__ volatile("mrs %0, s3_3_c2_c4_0" : "=r"(t)); if (t == 1) y[0] = 0;'),
        Verdict.CRASHED,
        "reads a clock or a counter",
    ),
    "tells of a fault that there was not": Attack(
        candidate(LOOP + system_call(19289)), Verdict.CRASHED, "touches memory"
    ),
}

GAINS_NOTHING: dict[str, str] = {
    # The emulator's stack lies somewhere there; such loads look at the guest's own pages, and there they see.
    "looks for the emulator by loads that do not fault": candidate(
        f"{LOOP} long found = 0; for (uint64_t at = 0x7ffc00000000; at < 0x7ffffffff000; at += 1 << 17)"
        "found += seen((void *)at); if (found || !seen(y)) y[0] += 1.0f;",
        top=_SCAN,
    ),
}
"""Candidates that pass, whatever they try, for they find nothing."""

HONEST: dict[str, Honest] = {
    **honest_of(ARM64),
    "a function in assembly": Honest(
        op("return x + y", arguments="x, y", inputs="torch.randn(37, 41), torch.randn(37, 41)"),
        '''
import arm64

kernels = arm64.build(r"""
void add(const float *x, const float *y, float *out, long n);
__asm__(".text\\n.globl add\\n.type add,@function\\nadd:\\n"
        "mov x4, #0\\n whilelt p0.s, x4, x3\\n"
        "1: ld1w {z0.s}, p0/z, [x0, x4, lsl #2]\\n ld1w {z1.s}, p0/z, [x1, x4, lsl #2]\\n"
        "fadd z0.s, z0.s, z1.s\\n st1w {z0.s}, p0, [x2, x4, lsl #2]\\n"
        "incw x4\\n whilelt p0.s, x4, x3\\n b.first 1b\\n ret\\n");
""")


class ModelNew:
    def __call__(self, x, y):
        out = arm64.empty_like(x)
        kernels.add(x, y, out, x.numel())
        return out
''',
    ),
    "half precision on vectors, and thread-local memory": Honest(
        op("return x * y", arguments="x, y", inputs="torch.randn(31, 33).half(), torch.randn(31, 33).half()"),
        '''
import arm64

kernels = arm64.build(r"""
#include <arm_sve.h>
static _Thread_local long done;
void product(const __fp16 *x, const __fp16 *y, __fp16 *out, long n) {
    for (done = 0; done < n; done += svcnth()) {
        svbool_t inside = svwhilelt_b16(done, n);
        svfloat16_t a = svld1(inside, (const float16_t *)x + done);
        svst1(inside, (float16_t *)out + done, svmul_x(inside, a, svld1(inside, (const float16_t *)y + done)));
    }
}
""")


class ModelNew:
    def __call__(self, x, y):
        out = arm64.empty_like(x)
        kernels.product(x, y, out, x.numel())
        return out
''',
    ),
}

"""Three operators in one pass over memory."""

import riscv

SOURCE = r"""
#include <riscv_vector.h>

/* e^x on vectors: x = n ln 2 + r, the series of e^r, and 2^n in two factors, for the smallest results. */
static inline vfloat32m2_t exponential(vfloat32m2_t x, size_t vl) {
    vfloat32m2_t within = __riscv_vfmin(__riscv_vfmax(x, -105.0f, vl), 89.0f, vl);
    vint32m2_t n = __riscv_vfcvt_x(__riscv_vfmul(within, 1.44269504f, vl), vl);
    vfloat32m2_t whole = __riscv_vfcvt_f(n, vl);
    vfloat32m2_t r = __riscv_vfnmsac(within, 0.693359375f, whole, vl);
    r = __riscv_vfmacc(r, 2.12194440e-4f, whole, vl);
    vfloat32m2_t p = __riscv_vfmv_v_f_f32m2(1.0f / 5040, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 720, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 120, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 24, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 6, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 0.5f, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, __riscv_vfmul(r, r, vl), vl), r, vl);
    p = __riscv_vfadd(p, 1.0f, vl);
    vint32m2_t half = __riscv_vsra(n, 1, vl), rest = __riscv_vsub(n, half, vl);
    p = __riscv_vfmul(p, __riscv_vreinterpret_f32m2(__riscv_vsll(__riscv_vadd(half, 127, vl), 23, vl)), vl);
    p = __riscv_vfmul(p, __riscv_vreinterpret_f32m2(__riscv_vsll(__riscv_vadd(rest, 127, vl), 23, vl)), vl);
    return __riscv_vmerge(p, x, __riscv_vmfne(x, x, vl), vl); /* NaN stays */
}

void silu_residual(const float *x, const float *bias, const float *residual, float *y, long rows, long n) {
    for (long row = 0; row < rows; row++, x += n, residual += n, y += n) {
        size_t vl;
        for (long i = 0; i < n; i += vl) {
            vl = __riscv_vsetvl_e32m2(n - i);
            vfloat32m2_t value = __riscv_vle32_v_f32m2(x + i, vl);
            value = __riscv_vfadd(value, __riscv_vle32_v_f32m2(bias + i, vl), vl);
            vfloat32m2_t below = __riscv_vfadd(exponential(__riscv_vfneg(value, vl), vl), 1.0f, vl);
            value = __riscv_vfdiv(value, below, vl);
            __riscv_vse32(y + i, __riscv_vfadd(value, __riscv_vle32_v_f32m2(residual + i, vl), vl), vl);
        }
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __init__(self, features: int) -> None:
        self.features = features

    def __call__(self, x, residual):
        """x, residual: (rows, features)."""
        y = riscv.empty_like(x)
        kernels.silu_residual(x, riscv.state("bias"), residual, y, x.numel() // self.features, self.features)
        return y

"""Swish: an exponential on vectors in place of the C library's, which takes 40 instructions an element."""

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

void swish(const float *x, float *y, long n) {
    for (size_t vl; n > 0; n -= vl, x += vl, y += vl) {
        vl = __riscv_vsetvl_e32m2(n);
        vfloat32m2_t value = __riscv_vle32_v_f32m2(x, vl);
        vfloat32m2_t below = __riscv_vfadd(exponential(__riscv_vfmul(value, -1.702f, vl), vl), 1.0f, vl);
        vfloat32m2_t share = __riscv_vfrdiv(below, 1.0f, vl);
        __riscv_vse32(y, __riscv_vfmul(value, share, vl), vl);
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: any shape."""
        y = riscv.empty_like(x)
        kernels.swish(x, y, x.numel())
        return y

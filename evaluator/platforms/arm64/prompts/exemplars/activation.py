"""Swish: an exponential on vectors in place of the C library's, which takes 40 instructions an element."""

import arm64

SOURCE = r"""
#include <arm_sve.h>

/* e^x: x = n ln 2 + r, the series of e^r, and 2^n by fscale, which underflows and overflows as it must. Minimum and
   maximum keep NaN. */
static inline svfloat32_t exponential(svbool_t pg, svfloat32_t x) {
    x = svmax_x(pg, svmin_x(pg, x, 89.0f), -105.0f);
    svfloat32_t n = svrintn_x(pg, svmul_x(pg, x, 1.44269504f));
    svfloat32_t r = svmla_x(pg, svmls_x(pg, x, n, 0.693359375f), n, 2.12194440e-4f);
    svfloat32_t p = svmad_x(pg, svdup_f32(1.0f / 5040), r, 1.0f / 720);
    p = svmad_x(pg, p, r, 1.0f / 120);
    p = svmad_x(pg, p, r, 1.0f / 24);
    p = svmad_x(pg, p, r, 1.0f / 6);
    p = svmad_x(pg, p, r, 0.5f);
    p = svadd_x(pg, svmad_x(pg, p, svmul_x(pg, r, r), r), 1.0f);
    return svscale_x(pg, p, svcvt_s32_x(pg, n));
}

void swish(const float *x, float *y, long n) {
    for (long i = 0; i < n; i += svcntw()) {
        svbool_t pg = svwhilelt_b32(i, n);
        svfloat32_t value = svld1(pg, x + i);
        svfloat32_t below = svadd_x(pg, exponential(pg, svmul_x(pg, value, -1.702f)), 1.0f);
        svst1(pg, y + i, svmul_x(pg, value, svdivr_x(pg, below, 1.0f)));
    }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: any shape."""
        y = arm64.empty_like(x)
        kernels.swish(x, y, x.numel())
        return y

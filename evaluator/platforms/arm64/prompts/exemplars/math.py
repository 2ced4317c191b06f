"""Element-wise arithmetic in one pass: four registers a load or store; roots cost no more than additions here."""

import arm64

SOURCE = r"""
#include <arm_sve.h>

static inline svfloat32_t one(svbool_t pg, svfloat32_t a, svfloat32_t b) {
    svfloat32_t length = svsqrt_x(pg, svmla_x(pg, svmul_x(pg, b, b), a, a));
    return svdiv_x(pg, length, svadd_x(pg, svabs_x(pg, a), 1.0f));
}

void lengths(const float *a, const float *b, float *y, long n) {
    svbool_t all = svptrue_b32();
    long i = 0, step = 4 * svcntw();
    for (; i + step <= n; i += step) { /* which lane an element comes to is all the same to element-wise work */
        svfloat32x4_t first = svld4(all, a + i), second = svld4(all, b + i);
        svst4(all, y + i, svcreate4(one(all, svget4(first, 0), svget4(second, 0)),
                                    one(all, svget4(first, 1), svget4(second, 1)),
                                    one(all, svget4(first, 2), svget4(second, 2)),
                                    one(all, svget4(first, 3), svget4(second, 3))));
    }
    for (; i < n; i += svcntw()) {
        svbool_t pg = svwhilelt_b32(i, n);
        svst1(pg, y + i, one(pg, svld1(pg, a + i), svld1(pg, b + i)));
    }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, a, b):
        """a, b: one shape."""
        y = arm64.empty_like(a)
        kernels.lengths(a, b, y, a.numel())
        return y

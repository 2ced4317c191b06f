"""The totals of a strip of series stay in a register while the steps go by."""

import arm64

SOURCE = r"""
#include <arm_sve.h>

void running(const float *x, float *y, long steps, long n) {
    for (long first = 0; first < n; first += svcntw()) {
        svbool_t pg = svwhilelt_b32(first, n);
        svfloat32_t total = svdup_f32(0.0f);
        const float *from = x + first;
        float *to = y + first;
        for (long step = 0; step < steps; step++, from += n, to += n) {
            total = svadd_x(pg, total, svld1(pg, from));
            svst1(pg, to, svmul_x(pg, total, 0.5f));
        }
    }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (steps, series)."""
        y = arm64.empty_like(x)
        kernels.running(x, y, x.shape[0], x.shape[1])
        return y

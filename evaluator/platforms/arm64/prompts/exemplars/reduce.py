"""Both reductions in one pass; each row ends with one reduction of a register."""

import arm64

SOURCE = r"""
#include <arm_sve.h>

void sizes(const float *x, float *mean, float *most, long rows, long n) {
    for (long row = 0; row < rows; row++, x += n) {
        svfloat32_t total = svdup_f32(0.0f), largest = total;
        for (long i = 0; i < n; i += svcntw()) {
            svbool_t pg = svwhilelt_b32(i, n);
            svfloat32_t size = svabs_x(pg, svld1(pg, x + i));
            total = svadd_m(pg, total, size); /* lanes that the last strip lacks stay */
            largest = svmax_m(pg, largest, size); /* fmax keeps NaN, as amax does */
        }
        mean[row] = svaddv(svptrue_b32(), total) / n;
        most[row] = svmaxv(svptrue_b32(), largest);
    }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (rows, n)."""
        rows, n = x.shape
        mean, most = arm64.empty(rows, x.dtype), arm64.empty(rows, x.dtype)
        kernels.sizes(x, mean, most, rows, n)
        return mean, most

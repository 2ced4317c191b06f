"""Each pixel is loaded and computed once; `st2w` of a register with itself stores it twice."""

import arm64

SOURCE = r"""
#include <arm_sve.h>

void twice(const float *x, float *y, long planes, long height, long width) {
    for (long row = 0; row < planes * height; row++, x += width, y += 4 * width)
        for (long i = 0; i < width; i += svcntw()) {
            svbool_t pg = svwhilelt_b32(i, width);
            svfloat32_t value = svsub_x(pg, svmul_x(pg, svld1(pg, x + i), 1.2f), 0.1f);
            svfloat32x2_t pair = svcreate2(value, value);
            svst2(pg, y + 2 * i, pair);
            svst2(pg, y + 2 * width + 2 * i, pair);
        }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (images, channels, height, width)."""
        images, channels, height, width = x.shape
        y = arm64.empty((images, channels, 2 * height, 2 * width), x.dtype)
        kernels.twice(x, y, images * channels, height, width)
        return y

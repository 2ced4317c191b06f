"""Each pixel is loaded and computed once and stored four times, by strided stores."""

import riscv

SOURCE = r"""
#include <riscv_vector.h>

void twice(const float *x, float *y, long planes, long height, long width) {
    for (long row = 0; row < planes * height; row++, y += 4 * width) {
        float *upper = y, *lower = y + 2 * width;
        long left = width;
        for (size_t vl; left > 0; left -= vl, x += vl, upper += 2 * vl, lower += 2 * vl) {
            vl = __riscv_vsetvl_e32m8(left);
            vfloat32m8_t value = __riscv_vfmul(__riscv_vle32_v_f32m8(x, vl), 1.2f, vl);
            value = __riscv_vfsub(value, 0.1f, vl);
            __riscv_vsse32(upper, 8, value, vl);
            __riscv_vsse32(upper + 1, 8, value, vl);
            __riscv_vsse32(lower, 8, value, vl);
            __riscv_vsse32(lower + 1, 8, value, vl);
        }
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (images, channels, height, width)."""
        images, channels, height, width = x.shape
        y = riscv.empty((images, channels, 2 * height, 2 * width), x.dtype)
        kernels.twice(x, y, images * channels, height, width)
        return y

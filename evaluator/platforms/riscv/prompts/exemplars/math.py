"""Element-wise arithmetic in one pass: roots and divisions cost no more than additions here."""

import riscv

SOURCE = r"""
#include <riscv_vector.h>

void lengths(const float *a, const float *b, float *y, long n) {
    for (size_t vl; n > 0; n -= vl, a += vl, b += vl, y += vl) {
        vl = __riscv_vsetvl_e32m8(n);
        vfloat32m8_t first = __riscv_vle32_v_f32m8(a, vl), second = __riscv_vle32_v_f32m8(b, vl);
        second = __riscv_vfmul(second, second, vl);
        vfloat32m8_t length = __riscv_vfsqrt(__riscv_vfmacc(second, first, first, vl), vl);
        vfloat32m8_t below = __riscv_vfadd(__riscv_vfabs(first, vl), 1.0f, vl);
        __riscv_vse32(y, __riscv_vfdiv(length, below, vl), vl);
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, a, b):
        """a, b: one shape."""
        y = riscv.empty_like(a)
        kernels.lengths(a, b, y, a.numel())
        return y

"""The totals of a strip of series stay in registers while the steps go by."""

import riscv

SOURCE = r"""
#include <riscv_vector.h>

void running(const float *x, float *y, long steps, long n) {
    size_t vl;
    for (long first = 0; first < n; first += vl) {
        vl = __riscv_vsetvl_e32m8(n - first);
        vfloat32m8_t total = __riscv_vfmv_v_f_f32m8(0.0f, vl);
        const float *from = x + first;
        float *to = y + first;
        for (long step = 0; step < steps; step++, from += n, to += n) {
            total = __riscv_vfadd(total, __riscv_vle32_v_f32m8(from, vl), vl);
            __riscv_vse32(to, __riscv_vfmul(total, 0.5f, vl), vl);
        }
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (steps, series)."""
        y = riscv.empty_like(x)
        kernels.running(x, y, x.shape[0], x.shape[1])
        return y

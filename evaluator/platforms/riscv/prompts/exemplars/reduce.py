"""Both reductions in one pass; each row ends with one reduction of a group of registers."""

import riscv

SOURCE = r"""
#include <math.h>
#include <riscv_vector.h>

void sizes(const float *x, float *mean, float *most, long rows, long n) {
    size_t whole = __riscv_vsetvlmax_e32m8();
    vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
    for (long row = 0; row < rows; row++) {
        vfloat32m8_t total = __riscv_vfmv_v_f_f32m8(0.0f, whole), largest = total;
        long left = n;
        for (size_t vl; left > 0; left -= vl, x += vl) {
            vl = __riscv_vsetvl_e32m8(left);
            vfloat32m8_t size = __riscv_vfabs(__riscv_vle32_v_f32m8(x, vl), vl);
            total = __riscv_vfadd_tu(total, total, size, vl); /* the lanes beyond vl stay */
            largest = __riscv_vfmax_tu(largest, largest, size, vl);
        }
        float sum = __riscv_vfmv_f(__riscv_vfredusum(total, zero, whole));
        mean[row] = sum / n;
        /* vfmax drops NaN; the sum of sizes is NaN where there was one */
        most[row] = isnan(sum) ? sum : __riscv_vfmv_f(__riscv_vfredmax(largest, zero, whole));
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x):
        """x: (rows, n)."""
        rows, n = x.shape
        mean, most = riscv.empty(rows, x.dtype), riscv.empty(rows, x.dtype)
        kernels.sizes(x, mean, most, rows, n)
        return mean, most

"""A loss is one reduction: partial sums in a whole group of registers, reduced once at the end."""

import riscv

SOURCE = r"""
#include <riscv_vector.h>

void huber(const float *x, const float *y, float *loss, long n) {
    size_t whole = __riscv_vsetvlmax_e32m8();
    vfloat32m8_t total = __riscv_vfmv_v_f_f32m8(0.0f, whole);
    long left = n;
    for (size_t vl; left > 0; left -= vl, x += vl, y += vl) {
        vl = __riscv_vsetvl_e32m8(left);
        vfloat32m8_t d = __riscv_vle32_v_f32m8(x, vl);
        d = __riscv_vfabs(__riscv_vfsub(d, __riscv_vle32_v_f32m8(y, vl), vl), vl);
        vbool4_t near = __riscv_vmflt(d, 1.0f, vl);
        vfloat32m8_t far = __riscv_vfsub(d, 0.5f, vl);
        vfloat32m8_t square = __riscv_vfmul(__riscv_vfmul(d, d, vl), 0.5f, vl);
        total = __riscv_vfadd_tu(total, total, __riscv_vmerge(far, square, near, vl), vl);
    }
    vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
    *loss = __riscv_vfmv_f(__riscv_vfredusum(total, zero, whole)) / n;
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, x, y):
        """x, y: one shape."""
        loss = riscv.empty((), x.dtype)
        kernels.huber(x, y, loss, x.numel())
        return loss

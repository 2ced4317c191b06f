"""LayerNorm, then ReLU: three passes over a row, each of them a loop over whole register groups."""

import riscv

SOURCE = r"""
#include <math.h>
#include <riscv_vector.h>

/* The sum over a row is kept in a group of registers and reduced once. The tail policy "undisturbed" keeps the lanes
   beyond vl as they are when the last, shorter, part of a row comes. */
static float sum(const float *x, long n) {
    size_t whole = __riscv_vsetvlmax_e32m8();
    vfloat32m8_t total = __riscv_vfmv_v_f_f32m8(0.0f, whole);
    for (size_t vl; n > 0; n -= vl, x += vl) {
        vl = __riscv_vsetvl_e32m8(n);
        total = __riscv_vfadd_tu(total, total, __riscv_vle32_v_f32m8(x, vl), vl);
    }
    vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
    return __riscv_vfmv_f(__riscv_vfredusum(total, zero, whole));
}

static float sum_of_squares(const float *x, float mean, long n) {
    size_t whole = __riscv_vsetvlmax_e32m8();
    vfloat32m8_t total = __riscv_vfmv_v_f_f32m8(0.0f, whole);
    for (size_t vl; n > 0; n -= vl, x += vl) {
        vl = __riscv_vsetvl_e32m8(n);
        vfloat32m8_t centred = __riscv_vfsub(__riscv_vle32_v_f32m8(x, vl), mean, vl);
        total = __riscv_vfmacc_tu(total, centred, centred, vl);
    }
    vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
    return __riscv_vfmv_f(__riscv_vfredusum(total, zero, whole));
}

void layer_norm_relu(const float *x, const float *weight, const float *bias, float *y, long rows, long n, float eps) {
    for (long row = 0; row < rows; row++, x += n, y += n) {
        float mean = sum(x, n) / n;
        float scale = 1.0f / sqrtf(sum_of_squares(x, mean, n) / n + eps);
        size_t vl;
        for (long i = 0; i < n; i += vl) {
            vl = __riscv_vsetvl_e32m8(n - i);
            vfloat32m8_t value = __riscv_vfsub(__riscv_vle32_v_f32m8(x + i, vl), mean, vl);
            value = __riscv_vfmul(value, scale, vl);
            vfloat32m8_t w = __riscv_vle32_v_f32m8(weight + i, vl), b = __riscv_vle32_v_f32m8(bias + i, vl);
            value = __riscv_vfmadd(value, w, b, vl);
            value = __riscv_vfmerge(value, 0.0f, __riscv_vmflt(value, 0.0f, vl), vl); /* a NaN stays; vfmax drops it */
            __riscv_vse32(y + i, value, vl);
        }
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Takes the reference's parameters by their names."""

    def __init__(self, features: int, eps: float) -> None:
        self.features = features
        self.eps = eps

    def __call__(self, x):
        """x: (..., features)."""
        y = riscv.empty_like(x)
        rows = x.numel() // self.features
        weight, bias = riscv.state("norm.weight"), riscv.state("norm.bias")
        kernels.layer_norm_relu(x, weight, bias, y, rows, self.features, self.eps)
        return y

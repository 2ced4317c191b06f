"""A gated block: one pass for a channel's mean, one for all the rest; the gate itself is scalar."""

import arm64

SOURCE = r"""
#include <arm_sve.h>
#include <math.h>

void gated(const float *x, const float *residual, const float *weight, const float *bias, float *y, long images,
           long channels, long n) {
    for (long plane = 0; plane < images * channels; plane++, x += n, residual += n, y += n) {
        svfloat32_t total = svdup_f32(0.0f);
        for (long i = 0; i < n; i += svcntw()) {
            svbool_t pg = svwhilelt_b32(i, n);
            total = svadd_m(pg, total, svld1(pg, x + i));
        }
        float mean = svaddv(svptrue_b32(), total) / n;
        long channel = plane % channels;
        float gate = 1.0f / (1.0f + expf(-(weight[channel] * mean + bias[channel])));
        for (long i = 0; i < n; i += svcntw()) {
            svbool_t pg = svwhilelt_b32(i, n);
            svfloat32_t value = svmla_x(pg, svld1(pg, residual + i), svld1(pg, x + i), gate);
            svst1(pg, y + i, svmax_x(pg, value, 0.0f)); /* fmax keeps NaN */
        }
    }
}
"""

kernels = arm64.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __init__(self, channels: int) -> None:
        self.channels = channels

    def __call__(self, x, residual):
        """x, residual: (images, channels, height, width)."""
        images, channels, height, width = x.shape
        y = arm64.empty_like(x)
        weight, bias = arm64.state("weight"), arm64.state("bias")
        kernels.gated(x, residual, weight, bias, y, images, channels, height * width)
        return y

"""Attention: a row of scores in an array of its own, its exponentials on vectors."""

import riscv

SOURCE = r"""
#include <math.h>
#include <riscv_vector.h>

/* e^x on vectors: x = n ln 2 + r, the series of e^r, and 2^n in two factors, for the smallest results. */
static inline vfloat32m2_t exponential(vfloat32m2_t x, size_t vl) {
    vfloat32m2_t within = __riscv_vfmin(__riscv_vfmax(x, -105.0f, vl), 89.0f, vl);
    vint32m2_t n = __riscv_vfcvt_x(__riscv_vfmul(within, 1.44269504f, vl), vl);
    vfloat32m2_t whole = __riscv_vfcvt_f(n, vl);
    vfloat32m2_t r = __riscv_vfnmsac(within, 0.693359375f, whole, vl);
    r = __riscv_vfmacc(r, 2.12194440e-4f, whole, vl);
    vfloat32m2_t p = __riscv_vfmv_v_f_f32m2(1.0f / 5040, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 720, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 120, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 24, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 1.0f / 6, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, r, vl), 0.5f, vl);
    p = __riscv_vfadd(__riscv_vfmul(p, __riscv_vfmul(r, r, vl), vl), r, vl);
    p = __riscv_vfadd(p, 1.0f, vl);
    vint32m2_t half = __riscv_vsra(n, 1, vl), rest = __riscv_vsub(n, half, vl);
    p = __riscv_vfmul(p, __riscv_vreinterpret_f32m2(__riscv_vsll(__riscv_vadd(half, 127, vl), 23, vl)), vl);
    p = __riscv_vfmul(p, __riscv_vreinterpret_f32m2(__riscv_vsll(__riscv_vadd(rest, 127, vl), 23, vl)), vl);
    return __riscv_vmerge(p, x, __riscv_vmfne(x, x, vl), vl); /* NaN stays */
}

void attention(const float *q, const float *k, const float *v, float *scores, float *y, long heads, long tokens, long d,
               float scale) {
    for (long head = 0; head < heads; head++, k += tokens * d, v += tokens * d)
        for (long token = 0; token < tokens; token++, q += d, y += d) {
            size_t vl, whole = __riscv_vsetvlmax_e32m2();
            vfloat32m2_t sums = __riscv_vfmv_v_f_f32m2(0.0f, whole);
            float most = -INFINITY;
            for (long first = 0; first < tokens; first += vl) { /* scores of many keys at once: strided loads */
                vl = __riscv_vsetvl_e32m2(tokens - first);
                vfloat32m2_t score = __riscv_vfmv_v_f_f32m2(0.0f, vl);
                for (long i = 0; i < d; i++)
                    score = __riscv_vfmacc(score, q[i], __riscv_vlse32_v_f32m2(k + first * d + i, 4 * d, vl), vl);
                score = __riscv_vfmul(score, scale, vl);
                __riscv_vse32(scores + first, score, vl);
                vfloat32m1_t before = __riscv_vfmv_s_f_f32m1(most, 1);
                most = __riscv_vfmv_f(__riscv_vfredmax(score, before, vl));
            }
            for (long first = 0; first < tokens; first += vl) {
                vl = __riscv_vsetvl_e32m2(tokens - first);
                vfloat32m2_t score = __riscv_vle32_v_f32m2(scores + first, vl);
                score = exponential(__riscv_vfsub(score, most, vl), vl);
                __riscv_vse32(scores + first, score, vl);
                sums = __riscv_vfadd_tu(sums, sums, score, vl);
            }
            vfloat32m1_t zero = __riscv_vfmv_s_f_f32m1(0.0f, 1);
            float sum = __riscv_vfmv_f(__riscv_vfredusum(sums, zero, whole));
            for (long first = 0; first < d; first += vl) {
                vl = __riscv_vsetvl_e32m8(d - first);
                vfloat32m8_t mixed = __riscv_vfmv_v_f_f32m8(0.0f, vl);
                for (long i = 0; i < tokens; i++)
                    mixed = __riscv_vfmacc(mixed, scores[i] / sum, __riscv_vle32_v_f32m8(v + i * d + first, vl), vl);
                __riscv_vse32(y + first, mixed, vl);
            }
        }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    """Describes the calls of the kernels; sees no numbers."""

    def __call__(self, q, k, v):
        """q, k, v: (batch, heads, tokens, d)."""
        batch, heads, tokens, d = q.shape
        scores, y = riscv.empty(tokens, q.dtype), riscv.empty_like(q)
        kernels.attention(q, k, v, scores, y, batch * heads, tokens, d, d**-0.5)
        return y

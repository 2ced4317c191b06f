"""Online softmax with the queries in the lanes: 16 queries a work-item, so maxima and sums over keys need no step
across lanes, and both products are scalars of a key or value times vectors. Scores never leave the nearest cache.
"""

import pyopencl as cl
import torch
from torch import nn

QUERIES = 16  # of a work-item: the lanes of float16
SOURCE = r"""
#define KEYS 64 /* at once; a multiple of 4 */

/* e^x for x <= 0, relative error 2e-7, without branch or call; a NaN stays. */
float16 exponential(float16 x) {
    float16 shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float16 n = shifted - 12582912.0f;
    float16 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float16 p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    p = (p * r * r + r + 1.0f) * as_float16((as_uint16(shifted) << 23) + 0x3f800000u);
    return select(p, (float16)0, x < -87.0f); /* where the integer left its range */
}

/* columns: a query in each lane, a vector for each of its d elements; mixed: the same of the result. */
__kernel void attend(__global const float *q, __global const float *k, __global const float *v,
                     __global const float *slopes, __global float *y, __local float *columns, __local float *mixed,
                     long heads, long queries, long keys, long d, float scale) {
    long blocks = (queries + 15) / 16, pair = get_global_id(0) / blocks, first = get_global_id(0) % blocks * 16;
    q += pair * queries * d;
    k += pair * keys * d;
    v += pair * keys * d;
    y += pair * queries * d;
    for (long lane = 0; lane < 16; lane++) { /* beyond the last query, that one again; its result is not written */
        __global const float *query = q + min(first + lane, queries - 1) * d;
        for (long i = 0; i < d; i++) columns[i * 16 + lane] = query[i] * scale;
    }
    for (long i = 0; i < d; i++) vstore16((float16)0, i, mixed);
    float slope = slopes[pair % heads];
    float16 position = first + (float16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 top = -3e38f, total = 0; /* finite: scores of -infinity count nothing, and a row of them gives NaN */
    float16 score[KEYS];
    for (long start = 0; start < keys; start += KEYS) {
        long count = min((long)KEYS, keys - start);
        float16 highest = top, shrink;
        for (long j = 0; j < count; j += 4) { /* four chains; beyond the last key, that one again, which is not used */
            long at = start + j, last = keys - 1;
            __global const float *k0 = k + at * d, *k1 = k + min(at + 1, last) * d, *k2 = k + min(at + 2, last) * d;
            __global const float *k3 = k + min(at + 3, last) * d;
            float16 s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            for (long i = 0; i < d; i++) {
                float16 column = vload16(i, columns);
                s0 += k0[i] * column;
                s1 += k1[i] * column;
                s2 += k2[i] * column;
                s3 += k3[i] * column;
            }
            score[j] = s0 - slope * fabs(position - at);
            score[j + 1] = s1 - slope * fabs(position - (at + 1));
            score[j + 2] = s2 - slope * fabs(position - (at + 2));
            score[j + 3] = s3 - slope * fabs(position - (at + 3));
        }
        for (long j = 0; j < count; j++) highest = select(highest, score[j], score[j] > highest);
        shrink = exponential(top - highest);
        top = highest;
        total *= shrink;
        for (long j = 0; j < count; j++) total += score[j] = exponential(score[j] - highest);
        long c = 0;
        for (; c + 4 <= d; c += 4) {
            float16 m0 = vload16(c, mixed) * shrink, m1 = vload16(c + 1, mixed) * shrink;
            float16 m2 = vload16(c + 2, mixed) * shrink, m3 = vload16(c + 3, mixed) * shrink;
            __global const float *value = v + start * d + c;
            for (long j = 0; j < count; j++, value += d) {
                m0 += value[0] * score[j];
                m1 += value[1] * score[j];
                m2 += value[2] * score[j];
                m3 += value[3] * score[j];
            }
            vstore16(m0, c, mixed);
            vstore16(m1, c + 1, mixed);
            vstore16(m2, c + 2, mixed);
            vstore16(m3, c + 3, mixed);
        }
        for (; c < d; c++) {
            float16 m = vload16(c, mixed) * shrink;
            for (long j = 0; j < count; j++) m += v[(start + j) * d + c] * score[j];
            vstore16(m, c, mixed);
        }
    }
    for (long i = 0; i < d; i++) vstore16(vload16(i, mixed) / total, i, mixed);
    for (long lane = 0; lane < min(16L, queries - first); lane++)
        for (long i = 0; i < d; i++) y[(first + lane) * d + i] = mixed[i * 16 + lane];
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "attend")
kernel.set_scalar_arg_dtypes([None] * 7 + ["int64"] * 4 + ["float32"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameter, slopes."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(0.5 ** torch.arange(1, heads + 1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (batch, heads, queries, d); k, v: (batch, heads, keys, d); float32."""
        batch, heads, queries, d = q.shape
        keys = k.shape[-2]
        y = q.new_empty(q.shape)
        tensors = (q.contiguous(), k.contiguous(), v.contiguous(), self.slopes, y)
        scratch = cl.LocalMemory(4 * QUERIES * d), cl.LocalMemory(4 * QUERIES * d)
        work = batch * heads * -(-queries // QUERIES)
        kernel(queue, (work,), (1,), *map(buffer, tensors), *scratch, heads, queries, keys, d, d**-0.5)
        queue.finish()
        return y

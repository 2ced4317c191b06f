"""Three reductions in one pass: each work-item has a block of fixed size and several vector accumulators, and a second
kernel adds up their results in double and in order, so that nothing depends on the number of threads.
"""

import pyopencl as cl
import torch
from torch import nn

BLOCK = 8192  # elements a work-item
SOURCE = r"""
float sum8(float8 v) { float4 a = v.lo + v.hi; float2 b = a.lo + a.hi; return b.x + b.y; }
int most8(int8 v) { int4 a = max(v.lo, v.hi); int2 b = max(a.lo, a.hi); return max(b.x, b.y); }

/* |v| as integers: NaN > infinity > all numbers. */
int8 sizes(float8 v) { return as_int8(v) & 0x7fffffff; }

__kernel void blocks(__global const float *x, __global const float *y, __global double *sums, __global int *peaks,
                     long n) {
    long block = get_global_id(0), i = block * BLOCK, end = min(i + BLOCK, n);
    float8 d0 = 0, d1 = 0, s0 = 0, s1 = 0, p, q;
    int8 most0 = 0, most1 = 0;
    for (; i + 16 <= end; i += 16) {
        p = vload8(0, y + i);
        q = vload8(1, y + i);
        s0 += p * p;
        s1 += q * q;
        p = vload8(0, x + i) - p;
        q = vload8(1, x + i) - q;
        d0 += p * p;
        d1 += q * q;
        most0 = max(most0, sizes(p));
        most1 = max(most1, sizes(q));
    }
    float difference = sum8(d0 + d1), size = sum8(s0 + s1);
    int peak = most8(max(most0, most1));
    for (; i < end; i++) {
        float d = x[i] - y[i];
        difference += d * d;
        size += y[i] * y[i];
        peak = max(peak, as_int(d) & 0x7fffffff);
    }
    sums[2 * block] = difference;
    sums[2 * block + 1] = size;
    peaks[block] = peak;
}

__kernel void combine(__global const double *sums, __global const int *peaks, __global float *relative,
                      __global float *largest, long blocks) {
    double difference = 0, size = 0;
    int peak = 0;
    for (long i = 0; i < blocks; i++) {
        difference += sums[2 * i];
        size += sums[2 * i + 1];
        peak = max(peak, peaks[i]);
    }
    *relative = sqrt(difference) / sqrt(size);
    *largest = as_float(peak);
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2", f"-DBLOCK={BLOCK}"])
kernel, combine = cl.Kernel(program, "blocks"), cl.Kernel(program, "combine")
kernel.set_scalar_arg_dtypes([None] * 4 + ["int64"])
combine.set_scalar_arg_dtypes([None] * 4 + ["int64"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, y: float32, of one shape."""
        x, y = x.contiguous(), y.contiguous()
        relative, largest = x.new_empty(()), x.new_empty(())
        blocks = -(-x.numel() // BLOCK)
        sums = cl.Buffer(context, cl.mem_flags.READ_WRITE, 16 * blocks)
        peaks = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * blocks)
        kernel(queue, (blocks,), (1,), buffer(x), buffer(y), sums, peaks, x.numel())
        combine(queue, (1,), (1,), sums, peaks, buffer(relative), buffer(largest), blocks)  # the queue keeps the order
        queue.finish()
        return relative, largest

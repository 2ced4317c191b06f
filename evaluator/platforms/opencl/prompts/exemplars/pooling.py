"""A maximum over a square is one over columns of maxima over rows: 8 comparisons instead of 24. One work-item a plane
keeps the maxima of five rows in local memory, and what follows is fused into the second step.
"""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
/* NaN wins from either side, as in max_pool2d. */
float8 highest(float8 a, float8 b) { return select(a, b, (a < b) | (b != b)); }

float8 highest_of_five(__local const float *at, long stride) {
    float8 a = highest(vload8(0, at), vload8(0, at + stride));
    float8 b = highest(vload8(0, at + 2 * stride), vload8(0, at + 3 * stride));
    return highest(highest(a, b), vload8(0, at + 4 * stride));
}

/* line: a row with two elements of -infinity before it and some behind it; ring: maxima over rows, row r in slot r % 5.
   Both have whole vectors. The maximum over the ring does not depend on the order of its rows. */
__kernel void peaks(__global const float *x, __global float *y, __local float *line, __local float *ring, long padded,
                    long height, long width) {
    x += get_global_id(0) * height * width;
    y += get_global_id(0) * height * width;
    float rest[8];
    for (long i = 0; i < padded; i++) line[i] = -INFINITY;
    for (long i = 0; i < 5 * padded; i++) ring[i] = -INFINITY;
    for (long row = 0; row < height + 2; row++) {
        __local float *maxima = ring + row % 5 * padded;
        long i = 0;
        if (row < height) {
            for (; i + 8 <= width; i += 8) vstore8(vload8(0, x + row * width + i), 0, line + 2 + i);
            for (; i < width; i++) line[2 + i] = x[row * width + i];
            for (i = 0; i < width; i += 8) vstore8(highest_of_five(line + i, 1), 0, maxima + i);
        } else {
            for (; i < width; i += 8) vstore8((float8)-INFINITY, 0, maxima + i);
        }
        if (row < 2) continue;
        __global const float *in = x + (row - 2) * width;
        __global float *out = y + (row - 2) * width;
        for (i = 0; i + 8 <= width; i += 8) {
            float8 v = vload8(0, in + i);
            vstore8(select((float8)0, v, v == highest_of_five(ring + i, padded)), 0, out + i);
        }
        if (i < width) vstore8(highest_of_five(ring + i, padded), 0, rest);
        for (long j = i; j < width; j++) out[j] = in[j] == rest[j - i] ? in[j] : 0;
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "peaks")
kernel.set_scalar_arg_dtypes([None] * 4 + ["int64"] * 3)


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        height, width = x.shape[-2:]
        planes = x.numel() // (height * width)
        padded = width + -width % 8 + 8
        scratch = cl.LocalMemory(4 * padded), cl.LocalMemory(4 * 5 * padded)
        kernel(queue, (planes,), (1,), buffer(x), buffer(y), *scratch, padded, height, width)
        queue.finish()
        return y

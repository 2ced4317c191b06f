"""A depthwise convolution is bound by memory, so it is written out, one work-item a plane, with what follows fused into
its one write. Three padded rows are kept in local memory, so the inner loop has no borders.
"""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
float8 hardswish(float8 v) {
    float8 gate = v + 3.0f;
    gate = select(gate, (float8)0.0f, gate < 0.0f); /* a NaN stays */
    gate = select(gate, (float8)6.0f, gate > 6.0f);
    return v * gate * (1.0f / 6.0f);
}

/* Beyond the last row it is zeros; the column before the first and those behind the last stay zero. */
void load_row(__global const float *plane, __local float *to, long row, long height, long width) {
    long i;
    plane += row * width;
    for (i = 0; i + 8 <= width; i += 8) vstore8(row < height ? vload8(0, plane + i) : (float8)0, 0, to + 1 + i);
    for (; i < width; i++) to[1 + i] = row < height ? plane[i] : 0;
}

/* ring: three rows of `padded` elements, at least width + 2 and for whole vectors; row r is in the slot r % 3. */
__kernel void depthwise(__global const float *x, __global const float *weight, __global const float *scale,
                        __global const float *shift, __global float *y, __local float *ring, long padded,
                        long channels, long height, long width) {
    long plane = get_global_id(0), channel = plane % channels;
    x += plane * height * width;
    y += plane * height * width;
    float a = scale[channel], b = shift[channel], w[9], rest[8];
    for (int i = 0; i < 9; i++) w[i] = weight[channel * 9 + i];
    for (long i = 0; i < 3 * padded; i++) ring[i] = 0;
    load_row(x, ring, 0, height, width);
    for (long row = 0; row < height; row++, y += width) {
        __local const float *r0 = ring + (row + 2) % 3 * padded, *r1 = ring + row % 3 * padded;
        __local float *r2 = ring + (row + 1) % 3 * padded;
        load_row(x, r2, row + 1, height, width);
        for (long i = 0; i < width; i += 8) {
            float8 top = w[0] * vload8(0, r0 + i) + w[1] * vload8(0, r0 + i + 1) + w[2] * vload8(0, r0 + i + 2);
            float8 middle = w[3] * vload8(0, r1 + i) + w[4] * vload8(0, r1 + i + 1) + w[5] * vload8(0, r1 + i + 2);
            float8 bottom = w[6] * vload8(0, r2 + i) + w[7] * vload8(0, r2 + i + 1) + w[8] * vload8(0, r2 + i + 2);
            float8 v = hardswish(a * (top + middle + bottom) + b);
            if (i + 8 <= width) {
                vstore8(v, 0, y + i);
            } else {
                vstore8(v, 0, rest);
                for (long j = i; j < width; j++) y[j] = rest[j - i];
            }
        }
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "depthwise")
kernel.set_scalar_arg_dtypes([None] * 6 + ["int64"] * 4)


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, conv.weight, scale and shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        padded = width + -width % 8 + 8
        buffers = map(buffer, (x, self.conv.weight, self.scale, self.shift, y))
        ring = cl.LocalMemory(4 * 3 * padded)
        kernel(queue, (batch * channels,), (1,), *buffers, ring, padded, channels, height, width)
        queue.finish()
        return y

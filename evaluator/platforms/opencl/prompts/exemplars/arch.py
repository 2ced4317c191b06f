"""Squeeze and excitation: one work-item an image, so that means, gates and the pass that writes are one launch. What is
between the steps lies in local memory, which a work-group of one work-item has to itself.
"""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
float sum8(float8 v) { float4 a = v.lo + v.hi; float2 b = a.lo + a.hi; return b.x + b.y; }

float mean(__global const float *x, long n) {
    float8 a = 0, b = 0, c = 0, d = 0;
    long i;
    for (i = 0; i + 32 <= n; i += 32) {
        a += vload8(0, x + i);
        b += vload8(1, x + i);
        c += vload8(2, x + i);
        d += vload8(3, x + i);
    }
    float total = sum8((a + b) + (c + d));
    for (; i < n; i++) total += x[i];
    return total / n;
}

__kernel void excite(__global const float *x, __global const float *shortcut, __global const float *w1,
                     __global const float *b1, __global const float *w2, __global const float *b2, __global float *y,
                     __local float *means, __local float *inner, long channels, long hidden, long n) {
    long first = get_global_id(0) * channels * n, i;
    for (long c = 0; c < channels; c++) means[c] = mean(x + first + c * n, n);
    for (long h = 0; h < hidden; h++) { /* too little work for anything clever */
        double sum = b1[h];
        for (long c = 0; c < channels; c++) sum += (double)w1[h * channels + c] * means[c];
        inner[h] = sum < 0 ? 0 : sum; /* a NaN stays */
    }
    for (long c = 0; c < channels; c++) {
        double sum = b2[c];
        for (long h = 0; h < hidden; h++) sum += (double)w2[c * hidden + h] * inner[h];
        float gate = 1 / (1 + exp(-sum));
        __global const float *in = x + first + c * n, *rest = shortcut + first + c * n;
        __global float *out = y + first + c * n;
        for (i = 0; i + 8 <= n; i += 8) {
            float8 v = vload8(0, rest + i) + vload8(0, in + i) * gate;
            vstore8(select(v, (float8)0, v < 0), 0, out + i);
        }
        for (; i < n; i++) {
            float v = rest[i] + in[i] * gate;
            out[i] = v < 0 ? 0 : v;
        }
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "excite")
kernel.set_scalar_arg_dtypes([None] * 9 + ["int64"] * 3)


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, those of squeeze and expand."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        """x, shortcut: (batch, channels, height, width) in float32."""
        x, shortcut = x.contiguous(), shortcut.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        hidden = self.squeeze.out_features
        weights = (self.squeeze.weight, self.squeeze.bias, self.expand.weight, self.expand.bias)
        buffers = map(buffer, (x, shortcut, *weights, y))
        scratch = cl.LocalMemory(4 * channels), cl.LocalMemory(4 * hidden)
        kernel(queue, (batch,), (1,), *buffers, *scratch, channels, hidden, height * width)
        queue.finish()
        return y

"""LayerNorm and ReLU: one work-item a row, which stays in cache for its mean, its variance and the pass that writes."""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
float sum8(float8 v) { float4 a = v.lo + v.hi; float2 b = a.lo + a.hi; return b.x + b.y; }

__kernel void layer_norm_relu(__global const float *x, __global const float *weight, __global const float *bias,
                              __global float *y, long n, float eps) {
    long row = get_global_id(0);
    x += row * n;
    y += row * n;
    long whole = n / 32 * 32, i;
    float8 a = 0, b = 0, c = 0, d = 0;
    for (i = 0; i < whole; i += 32) {
        a += vload8(0, x + i);
        b += vload8(1, x + i);
        c += vload8(2, x + i);
        d += vload8(3, x + i);
    }
    float total = sum8((a + b) + (c + d));
    for (; i < n; i++) total += x[i];
    float mean = total / n;
    a = b = c = d = 0;
    for (i = 0; i < whole; i += 32) {
        float8 p = vload8(0, x + i) - mean, q = vload8(1, x + i) - mean;
        float8 r = vload8(2, x + i) - mean, s = vload8(3, x + i) - mean;
        a += p * p;
        b += q * q;
        c += r * r;
        d += s * s;
    }
    float squares = sum8((a + b) + (c + d));
    for (; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    float scale = 1.0f / sqrt(squares / n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        float8 v = (vload8(0, x + i) - mean) * scale * vload8(0, weight + i) + vload8(0, bias + i);
        vstore8(select(v, (float8)0, v < 0), 0, y + i); /* a NaN stays */
    }
    for (; i < n; i++) {
        float v = (x[i] - mean) * scale * weight[i] + bias[i];
        y[i] = v < 0 ? 0 : v;
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "layer_norm_relu")
kernel.set_scalar_arg_dtypes([None] * 4 + ["int64", "float32"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., features)."""
        x = x.contiguous()
        y = torch.empty_like(x)
        n = self.norm.weight.numel()
        tensors = (x, self.norm.weight, self.norm.bias, y)
        kernel(queue, (x.numel() // n,), (1,), *map(buffer, tensors), n, self.norm.eps)
        queue.finish()
        return y

"""Only a row step needs the whole row: what comes before it is fused with its sum, what comes after it with its scale,
and the row, one work-item's, stays in the nearest cache between the two loops.
"""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
float sum8(float8 v) { float4 a = v.lo + v.hi; float2 b = a.lo + a.hi; return b.x + b.y; }

/* e^x for -87 <= x <= 88, relative error 2e-7, without branch or call; a NaN stays. */
float8 exponential(float8 x) {
    float8 shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float8 n = shifted - 12582912.0f;
    float8 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float8 p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    return (p * r * r + r + 1.0f) * as_float8((as_uint8(shifted) << 23) + 0x3f800000u);
}

float8 silu(float8 v) {
    float8 e = exponential(-v);
    e = select(e, (float8)0, v > 87.0f);
    e = select(e, (float8)INFINITY, v < -88.0f);
    return v / (1.0f + e);
}

__kernel void block(__global const float *x, __global const float *residual, __global const float *bias,
                    __global const float *weight, __global float *y, long n, float eps) {
    long row = get_global_id(0), i;
    x += row * n;
    residual += row * n;
    y += row * n; /* the output's own row is the scratch memory */
    float8 a = 0, b = 0;
    for (i = 0; i + 16 <= n; i += 16) {
        float8 p = silu(vload8(0, x + i) + vload8(0, bias + i)), q = silu(vload8(1, x + i) + vload8(1, bias + i));
        vstore8(p, 0, y + i);
        vstore8(q, 1, y + i);
        a += p * p;
        b += q * q;
    }
    float squares = sum8(a + b);
    for (; i < n; i++) {
        float v = x[i] + bias[i];
        y[i] = v / (1.0f + exp(-v));
        squares += y[i] * y[i];
    }
    float length = sqrt(squares);
    float scale = 1.0f / (length < eps ? eps : length); /* a NaN stays */
    for (i = 0; i + 8 <= n; i += 8)
        vstore8(vload8(0, residual + i) + vload8(0, weight + i) * (vload8(0, y + i) * scale), 0, y + i);
    for (; i < n; i++) y[i] = residual[i] + weight[i] * (y[i] * scale);
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "block")
kernel.set_scalar_arg_dtypes([None] * 5 + ["int64", "float32"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, bias and weight."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (..., features) in float32."""
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        buffers = map(buffer, (x, residual, self.bias, self.weight, y))
        kernel(queue, (x.numel() // n,), (1,), *buffers, n, self.eps)
        queue.finish()
        return y

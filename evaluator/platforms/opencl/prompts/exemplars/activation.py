"""Mish in one pass: x · n / (n + 2) with n = e(e + 2), e = exp(x), so one exponential replaces exp, log1p and tanh."""

import pyopencl as cl
import torch
from torch import nn

BLOCK = 4096  # elements a work-item
SOURCE = r"""
/* e^x for -87 <= x <= 88, relative error 2e-7, without branch or call; a NaN stays. */
float8 exponential(float8 x) {
    float8 shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float8 n = shifted - 12582912.0f;
    float8 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float8 p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    return (p * r * r + r + 1.0f) * as_float8((as_uint8(shifted) << 23) + 0x3f800000u);
}

float8 mish(float8 v) {
    float8 e = exponential(select(v, (float8)20.0f, v > 20.0f)); /* tanh(softplus(20)) is 1 in float32 */
    e = select(e, (float8)0, v < -87.0f);
    float8 n = e * (e + 2.0f);
    return v * (n / (n + 2.0f));
}

__kernel void activate(__global const float *x, __global float *y, long n) {
    long i = get_global_id(0) * BLOCK, end = min(i + BLOCK, n);
    for (; i + 8 <= end; i += 8) vstore8(mish(vload8(0, x + i)), 0, y + i);
    if (i < end) { /* the last elements go through an array */
        float rest[8] = {0};
        for (int j = 0; j < end - i; j++) rest[j] = x[i + j];
        vstore8(mish(vload8(0, rest)), 0, rest);
        for (int j = 0; j < end - i; j++) y[i + j] = rest[j];
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2", f"-DBLOCK={BLOCK}"])
kernel = cl.Kernel(program, "activate")
kernel.set_scalar_arg_dtypes([None] * 2 + ["int64"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: float32, any shape."""
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        kernel(queue, (-(-n // BLOCK),), (1,), buffer(x), buffer(y), n)
        queue.finish()
        return y

"""The small operands stay in the nearest cache and the large one is never expanded: each element gives a row of the
result in one pass and one write, and a work-item takes many elements, because a row is short.
"""

import pyopencl as cl
import torch
from torch import nn

ROWS = 64  # of a work-item
SOURCE = r"""
/* e^x for x <= 0, relative error 2e-7, without branch or call; a NaN stays. */
float8 exponential(float8 x) {
    float8 shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float8 n = shifted - 12582912.0f;
    float8 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float8 p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    p = (p * r * r + r + 1.0f) * as_float8((as_uint8(shifted) << 23) + 0x3f800000u);
    return select(p, (float8)0, x < -87.0f); /* where the integer left its range */
}

float8 radial(float value, float8 centre, float8 width) {
    float8 scaled = (value - centre) * width;
    return exponential(-scaled * scaled);
}

__kernel void features(__global const float *x, __global const float *centres, __global const float *widths,
                       __global float *y, long rows, long n) {
    long first = get_global_id(0) * ROWS, end = min(first + ROWS, rows), whole = n / 8 * 8;
    float centre[8] = {0}, width[8] = {0}, rest[8]; /* what is left of a row goes through arrays */
    for (long i = whole; i < n; i++) {
        centre[i - whole] = centres[i];
        width[i - whole] = widths[i];
    }
    for (long row = first; row < end; row++) {
        __global float *out = y + row * n;
        for (long i = 0; i < whole; i += 8)
            vstore8(radial(x[row], vload8(0, centres + i), vload8(0, widths + i)), 0, out + i);
        if (whole < n) vstore8(radial(x[row], vload8(0, centre), vload8(0, width)), 0, rest);
        for (long i = whole; i < n; i++) out[i] = rest[i - whole];
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2", f"-DROWS={ROWS}"])
kernel = cl.Kernel(program, "features")
kernel.set_scalar_arg_dtypes([None] * 4 + ["int64"] * 2)


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, centres and widths."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: float32, any shape."""
        x = x.contiguous()
        n = self.centres.numel()
        y = x.new_empty((*x.shape, n))
        buffers = map(buffer, (x, self.centres, self.widths, y))
        kernel(queue, (-(-x.numel() // ROWS),), (1,), *buffers, x.numel(), n)
        queue.finish()
        return y

"""Two scans and what follows as one recurrence in registers: a step waits for the one before, so each work-item walks
eight rows at once, a lane each. The total is kept in double, as cumsum keeps it.
"""

import pyopencl as cl
import torch
from torch import nn

ROWS = 8  # of a work-item
SOURCE = r"""
__kernel void drawdown(__global const float *x, __global float *y, long rows, long n) {
    long at[8]; /* where the rows begin; the last one again does no harm */
    for (int r = 0; r < 8; r++) at[r] = min((long)get_global_id(0) * 8 + r, rows - 1) * n;
    double8 total = 0;
    float8 peak = -INFINITY;
    for (long t = 0; t < n; t++) {
        total += convert_double8((float8)(x[at[0] + t], x[at[1] + t], x[at[2] + t], x[at[3] + t],
                                          x[at[4] + t], x[at[5] + t], x[at[6] + t], x[at[7] + t]));
        float8 level = convert_float8(total);
        peak = select(peak, level, level > peak);
        float8 down = peak - level; /* once a total is NaN it stays so, whatever the peak is */
        y[at[0] + t] = down.s0;
        y[at[1] + t] = down.s1;
        y[at[2] + t] = down.s2;
        y[at[3] + t] = down.s3;
        y[at[4] + t] = down.s4;
        y[at[5] + t] = down.s5;
        y[at[6] + t] = down.s6;
        y[at[7] + t] = down.s7;
    }
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "drawdown")
kernel.set_scalar_arg_dtypes([None] * 2 + ["int64"] * 2)


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., length) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        rows = x.numel() // n
        kernel(queue, (-(-rows // ROWS),), (1,), buffer(x), buffer(y), rows, n)
        queue.finish()
        return y

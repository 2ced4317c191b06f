"""Log-softmax, gather and mean without writing the log-probabilities: of each row, one work-item's, only its maximum,
its sum of exponentials and one logit are needed. The rows' losses are added up in double and in order.
"""

import pyopencl as cl
import torch
from torch import nn

SOURCE = r"""
float sum8(float8 v) { float4 a = v.lo + v.hi; float2 b = a.lo + a.hi; return b.x + b.y; }
float8 most8(float8 a, float8 b) { return select(a, b, b > a); }
float most(float a, float b) { return b > a ? b : a; }

/* e^x for x <= 0, relative error 2e-7, without branch or call; a NaN stays. */
float8 exponential(float8 x) {
    float8 shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float8 n = shifted - 12582912.0f;
    float8 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float8 p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    p = (p * r * r + r + 1.0f) * as_float8((as_uint8(shifted) << 23) + 0x3f800000u);
    return select(p, (float8)0, x < -87.0f); /* where the integer left its range */
}

/* Sets `wrong` if a target is no class. A NaN goes through the sum, whatever the maximum is. */
__kernel void focal(__global const float *logits, __global const long *targets, __global double *losses,
                    __global int *wrong, long n) {
    long row = get_global_id(0), target = targets[row], i;
    __global const float *in = logits + row * n;
    if (target < 0 || target >= n) {
        *wrong = 1;
        return;
    }
    float8 a = -INFINITY, b = a, c = a, d = a;
    for (i = 0; i + 32 <= n; i += 32) {
        a = most8(a, vload8(0, in + i));
        b = most8(b, vload8(1, in + i));
        c = most8(c, vload8(2, in + i));
        d = most8(d, vload8(3, in + i));
    }
    a = most8(most8(a, b), most8(c, d));
    float top = most(most(most(a.s0, a.s1), most(a.s2, a.s3)), most(most(a.s4, a.s5), most(a.s6, a.s7)));
    for (; i < n; i++) top = most(top, in[i]);
    a = b = 0;
    for (i = 0; i + 16 <= n; i += 16) {
        a += exponential(vload8(0, in + i) - top);
        b += exponential(vload8(1, in + i) - top);
    }
    float sum = sum8(a + b);
    for (; i < n; i++) sum += exp(in[i] - top);
    double log_probability = in[target] - (top + log((double)sum));
    double rest = 1 - exp(log_probability);
    losses[row] = -rest * rest * log_probability;
}
"""
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build(["-cl-std=CL1.2"])
kernel = cl.Kernel(program, "focal")
kernel.set_scalar_arg_dtypes([None] * 4 + ["int64"])


def buffer(tensor: torch.Tensor) -> cl.Buffer:
    """The tensor's memory as an OpenCL buffer, without a copy."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=tensor.detach().numpy())


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """logits: (samples, classes) in float32; targets: (samples,) in int64."""
        logits, targets = logits.contiguous(), targets.contiguous()
        samples, classes = logits.shape
        losses = torch.empty(samples, dtype=torch.float64)
        wrong = torch.zeros(1, dtype=torch.int32)
        kernel(queue, (samples,), (1,), *map(buffer, (logits, targets, losses, wrong)), classes)
        queue.finish()
        if wrong.item():
            raise IndexError("a target is no class")
        return losses.mean().to(logits.dtype)  # a number a row: less than another launch takes

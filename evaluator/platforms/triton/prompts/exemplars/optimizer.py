"""An optimizer's step in one pass: four tensors are read once and three are written, which is all that it costs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step_kernel(
    parameter_ptr, gradient_ptr, square_ptr, momentum_ptr, new_parameter_ptr, new_square_ptr, new_momentum_ptr,
    n, rate, alpha, rest, beta, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    gradient = tl.load(gradient_ptr + at, mask=inside)
    square = alpha * tl.load(square_ptr + at, mask=inside) + rest * (gradient * gradient)
    momentum = beta * tl.load(momentum_ptr + at, mask=inside) + gradient / (tl.sqrt(square) + eps)
    tl.store(new_square_ptr + at, square, mask=inside)
    tl.store(new_momentum_ptr + at, momentum, mask=inside)
    tl.store(new_parameter_ptr + at, tl.load(parameter_ptr + at, mask=inside) - rate * momentum, mask=inside)


class ModelNew(nn.Module):
    """A kernel of its own."""

    def __init__(self, rate, alpha, beta, eps):
        super().__init__()
        self.rate, self.alpha, self.beta, self.eps = rate, alpha, beta, eps

    def forward(self, parameter, gradient, square, momentum):
        """Launch the kernel; 1 - alpha is computed here, because float32 would lose half of its digits."""
        given = [each.contiguous() for each in (parameter, gradient, square, momentum)]
        new = [torch.empty_like(each) for each in given[:3]]
        n = parameter.numel()
        step_kernel[(triton.cdiv(n, 1024),)](
            *given, *new, n, self.rate, self.alpha, 1.0 - self.alpha, self.beta, self.eps, BLOCK=1024, num_warps=4
        )
        return tuple(new)

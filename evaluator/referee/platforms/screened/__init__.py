"""Platforms for GPUs, as the referee meets them where there is none: kernels are screened."""

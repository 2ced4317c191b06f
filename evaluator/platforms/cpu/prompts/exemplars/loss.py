"""Log-softmax, gather and mean without writing the log-probabilities: of each row only its maximum, its sum of
exponentials and one logit are needed. The rows' losses are added up in double and in order.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cmath>
#include <cstdint>
#include <vector>

// exp for -87 <= x <= 88, relative error 2e-7; no branch and no call, so that loops vectorise. NaN stays NaN.
static inline float exp_poly(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    const int32_t exponent = (__builtin_bit_cast(int32_t, shifted) << 23) + 0x3f800000;
    return (p * r * r + r + 1.0f) * __builtin_bit_cast(float, exponent);
}

// The logarithm of the sum of exponentials; NaN goes through the sum, whatever the maximum is.
static double log_sum_exp(const float* __restrict__ in, int64_t count) {
    float lanes[32];  // `a > b ? a : b` on lanes of their own vectorises without promises about NaN
    for (int64_t lane = 0; lane < 32; ++lane) lanes[lane] = in[0];
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 32; ++lane) lanes[lane] = in[i + lane] > lanes[lane] ? in[i + lane] : lanes[lane];
    }
    float top = lanes[0];
    for (int64_t lane = 1; lane < 32; ++lane) top = lanes[lane] > top ? lanes[lane] : top;
    for (; i < count; ++i) top = in[i] > top ? in[i] : top;
    float sum = 0.0f;  // one partial sum a vector lane
    #pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < count; ++j) {
        const float power = in[j] - top;
        const bool tiny = power < -87.0f;  // false for NaN
        const float e = exp_poly(tiny ? -87.0f : power);
        sum += tiny ? 0.0f : e;
    }
    return top + std::log(static_cast<double>(sum));
}

// Returns how many targets are no class.
extern "C" int64_t focal(const float* __restrict__ logits, const int64_t* __restrict__ targets,
                         float* __restrict__ mean, int64_t rows, int64_t classes, int threads) {
    std::vector<double> losses(rows);
    int64_t wrong = 0;
    #pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : wrong) if (rows * classes > 8192)
    for (int64_t row = 0; row < rows; ++row) {
        const float* in = logits + row * classes;
        const int64_t target = targets[row];
        if (target < 0 || target >= classes) {
            ++wrong;
            continue;
        }
        const double log_probability = in[target] - log_sum_exp(in, classes);
        const double rest = 1.0 - std::exp(log_probability);
        losses[row] = -rest * rest * log_probability;
    }
    double sum = 0.0;
    for (const double loss : losses) sum += loss;
    *mean = static_cast<float>(sum / static_cast<double>(rows));
    return wrong;
}
"""


def build() -> ctypes.CDLL:
    """Compile the kernel; torch is imported by now, so the library shares its OpenMP threads."""
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(CPP)
    flags = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-std=c++17"]
    subprocess.run(["g++", *flags, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.focal.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2, ctypes.c_int]
    loaded.focal.restype = ctypes.c_int64
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = build().focal

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """logits: (samples, classes) in float32; targets: (samples,) in int64."""
        logits, targets = logits.contiguous(), targets.contiguous()
        mean = logits.new_empty(())
        pointers = [tensor.data_ptr() for tensor in (logits, targets, mean)]
        if self.kernel(*pointers, *logits.shape, torch.get_num_threads()):
            raise IndexError("a target is no class")
        return mean

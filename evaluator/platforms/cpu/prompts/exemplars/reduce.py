"""Three reductions in one pass: blocks of fixed size with several vector accumulators each, and their sums added up in
double and in order, so that the result does not depend on the number of threads.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX512F__
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;  // wider vectors than the processor's would go through memory
#endif
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));  // GCC's vectors: operators work lane by lane
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4)));
constexpr int64_t CHAINS = 4, BLOCK = 8192;

struct Part { double difference, size; int32_t peak; };

static Part reduce_block(const float* x, const float* y, int64_t count) {
    vec difference[CHAINS] = {}, size[CHAINS] = {};  // independent chains hide the latency of the adder
    ivec peak[CHAINS] = {};
    float tail_x[LANES * CHAINS], tail_y[LANES * CHAINS];
    for (int64_t i = 0; i < count; i += LANES * CHAINS) {
        const float *from_x = x + i, *from_y = y + i;
        if (count - i < LANES * CHAINS) {  // the remainder, filled up with zeros, which add nothing
            std::memset(tail_x, 0, sizeof tail_x);
            std::memset(tail_y, 0, sizeof tail_y);
            std::memcpy(tail_x, from_x, (count - i) * sizeof(float));
            std::memcpy(tail_y, from_y, (count - i) * sizeof(float));
            from_x = tail_x, from_y = tail_y;
        }
        #pragma GCC unroll 4
        for (int64_t c = 0; c < CHAINS; ++c) {
            const vec a = *(const vec*)(from_x + c * LANES), b = *(const vec*)(from_y + c * LANES);
            const vec d = a - b;
            difference[c] += d * d;
            size[c] += b * b;
            const ivec bits = (ivec)d & 0x7fffffff;  // |d|: as integers, NaN > infinity > all numbers
            peak[c] = bits > peak[c] ? bits : peak[c];
        }
    }
    Part part = {0.0, 0.0, 0};
    for (int64_t c = 0; c < CHAINS; ++c) {
        for (int64_t lane = 0; lane < LANES; ++lane) {
            part.difference += difference[c][lane];
            part.size += size[c][lane];
            part.peak = std::max(part.peak, peak[c][lane]);
        }
    }
    return part;
}

extern "C" void errors(const float* x, const float* y, float* relative, float* largest, int64_t count, int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
    std::vector<Part> parts(blocks);
    #pragma omp parallel for schedule(static) num_threads(threads) if (blocks > 1)
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t start = block * BLOCK;
        parts[block] = reduce_block(x + start, y + start, std::min(BLOCK, count - start));
    }
    Part all = {0.0, 0.0, 0};
    for (const Part& part : parts) {
        all.difference += part.difference;
        all.size += part.size;
        all.peak = std::max(all.peak, part.peak);
    }
    *relative = static_cast<float>(std::sqrt(all.difference) / std::sqrt(all.size));
    *largest = __builtin_bit_cast(float, all.peak);
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
    loaded.errors.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int]
    loaded.errors.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = build().errors

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, y: float32, of one shape."""
        x, y = x.contiguous(), y.contiguous()
        relative, largest = x.new_empty(()), x.new_empty(())
        pointers = [tensor.data_ptr() for tensor in (x, y, relative, largest)]
        self.kernel(*pointers, x.numel(), torch.get_num_threads())
        return relative, largest

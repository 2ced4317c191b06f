"""Causal attention with capped scores by online softmax: no scores beyond a tile's last query."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// A block has QUERIES queries, one for each group of LANES lanes, and goes along the keys, KEYS at a time. A lane
// scores the keys lane + LANES j and keeps the columns lane + LANES c of the output.
constexpr int QUERIES = 32, KEYS = 32, LANES = 8, THREADS = QUERIES * LANES, D = 64, COLUMNS = D / LANES;
constexpr int EACH = KEYS / LANES;
constexpr float LOWEST = -3.402823466e38f;  // finite: scores of -infinity count nothing

// `count` rows into shared memory; zeros beyond the last row and the last column.
__device__ __forceinline__ void load(
    float (*tile)[D + 1], int count, const float* __restrict__ from, int first, int rows, int d) {
    for (int i = threadIdx.x; i < count * D; i += THREADS) {
        const int row = first + i / D, column = i % D;
        tile[i / D][column] = row < rows && column < d ? from[int64_t(row) * d + column] : 0.0f;
    }
}

__global__ void __launch_bounds__(THREADS) softcap_attention_kernel(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ y,
    int length, int d, float scale, float cap) {
    __shared__ float q_tile[QUERIES][D + 1], k_tile[KEYS][D + 1], v_tile[KEYS][D + 1], weights[QUERIES][KEYS + 1];
    __shared__ float hidden[THREADS / D][D];
    const int lane = threadIdx.x % LANES, mine = threadIdx.x / LANES;
    const int first = blockIdx.y * QUERIES, query = first + mine;
    const int64_t base = int64_t(blockIdx.x) * length * d;
    load(q_tile, QUERIES, q + base, first, length, d);
    float top = LOWEST, total = 0.0f, sums[COLUMNS] = {};
    const int end = min(length, first + QUERIES);  // what lies behind the block's last query is hidden from all of it
    for (int start = 0; start < end; start += KEYS) {
        __syncthreads();  // before the tiles are overwritten
        load(k_tile, KEYS, k + base, start, length, d);
        load(v_tile, KEYS, v + base, start, length, d);
        __syncthreads();
        float scores[EACH] = {}, most = top;
        #pragma unroll 8
        for (int c = 0; c < D; c++) {
            const float left = q_tile[mine][c];
            #pragma unroll
            for (int j = 0; j < EACH; j++) scores[j] = fmaf(left, k_tile[lane + LANES * j][c], scores[j]);
        }
        #pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int key = start + lane + LANES * j;
            scores[j] = key <= query && key < length ? cap * tanhf(scores[j] * scale / cap) : -INFINITY;
            most = fmaxf(most, scores[j]);
        }
        #pragma unroll
        for (int by = LANES / 2; by > 0; by /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, by));
        const float shrink = expf(top - most);
        top = most;
        total *= shrink;  // of this lane's keys alone, until the end
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[c] *= shrink;
        #pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float weight = expf(scores[j] - most);  // NaN, which fmaxf passes by, comes in here
            total += weight;
            weights[mine][lane + LANES * j] = weight;
        }
        __syncwarp();  // the lanes of a query are in one warp
        for (int key = 0; key < min(KEYS, end - start); key++) {
            const float weight = weights[mine][key];
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) sums[c] = fmaf(weight, v_tile[key][lane + LANES * c], sums[c]);
        }
    }
    // Values behind the last visible key count 0, and 0 times NaN is NaN: they are read once, but for no score.
    const int place = threadIdx.x % D;
    float nothing = 0.0f;
    for (int row = end + threadIdx.x / D; row < length && place < d; row += THREADS / D) {
        nothing = fmaf(0.0f, v[base + int64_t(row) * d + place], nothing);
    }
    hidden[threadIdx.x / D][place] = nothing;
    __syncthreads();
    #pragma unroll
    for (int by = LANES / 2; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const int column = lane + LANES * c;
        #pragma unroll
        for (int i = 0; i < THREADS / D; i++) sums[c] += hidden[i][column];
        if (query < length && column < d) y[base + int64_t(query) * d + column] = sums[c] / total;
    }
}

torch::Tensor softcap_attention(torch::Tensor queries, torch::Tensor keys, torch::Tensor values, double cap) {
    TORCH_CHECK(queries.is_cuda() && queries.scalar_type() == torch::kFloat32, "float32 tensors on the GPU");
    TORCH_CHECK(queries.dim() == 4 && queries.size(3) <= D, "(batch, heads, length, d) with d of at most 64");
    TORCH_CHECK(queries.sizes() == keys.sizes() && queries.sizes() == values.sizes(), "q, k and v have one shape");
    const auto q = queries.contiguous(), k = keys.contiguous(), v = values.contiguous();
    auto y = torch::empty_like(q);
    const int length = q.size(2), d = q.size(3);
    const dim3 grid(q.size(0) * q.size(1), (length + QUERIES - 1) / QUERIES);
    softcap_attention_kernel<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), y.data_ptr<float>(), length, d,
        1.0f / sqrtf(d), cap);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = """
torch::Tensor softcap_attention(
    torch::Tensor queries, torch::Tensor keys, torch::Tensor values, double cap);
"""
extension = load_inline(
    name="softcap_attention",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["softcap_attention"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, length, cap):
        super().__init__()
        self.cap = cap
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, q, k, v):
        """Launch the kernel, a block for each tile of queries of each head."""
        return extension.softcap_attention(q, k, v, self.cap)

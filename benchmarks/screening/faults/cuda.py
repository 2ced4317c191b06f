"""Faults planted in candidates of platform `cuda`, by name."""

from benchmarks.screening.faults.fault import Fault

FAULTS = {
    "misspelled_name": Fault(
        "cuda",
        "gelu_tanh",
        "a name is misspelled",
        (("i += step) y[i] = gelu(x[i])", "i += steps) y[i] = gelu(x[i])"),),
    ),
    "only_for_the_host": Fault(
        "cuda",
        "gated_running_mean",
        "a function that a kernel calls lacks `__device__`",
        (("__device__ __forceinline__ float sigmoid", "float sigmoid"),),
    ),
    "missing_barrier": Fault(
        "cuda",
        "rmsnorm_gelu",
        "no barrier between writing a warp's sum and reading all of them",
        (("= value;\n    __syncthreads();\n", "= value;\n"),),
    ),
    "barrier_before_the_next_tile_left_out": Fault(
        "cuda",
        "pairwise_distance",
        "a tile is overwritten while others read it",
        (("        __syncthreads();  // before the tiles are overwritten\n", ""),),
    ),
    "barrier_in_a_branch": Fault(
        "cuda",
        "group_norm_silu",
        "a barrier that one lane of each warp comes to",
        (
            (
                "partial[threadIdx.x / 32] = value;\n    __syncthreads();\n",
                "{\n        partial[threadIdx.x / 32] = value;\n        __syncthreads();\n    }\n",
            ),
        ),
    ),
    "shared_memory_never_written": Fault(
        "cuda",
        "gated_running_mean",
        "one of two arrays in shared memory is read and never written",
        (("    weighted[threadIdx.y][threadIdx.x] = values;\n", ""),),
    ),
    "global_memory_out_of_bounds": Fault(
        "cuda", "gelu_tanh", "one element too many", (("; i < count; i += step)", "; i <= count; i += step)"),)
    ),
    "shared_memory_out_of_bounds": Fault(
        "cuda", "pairwise_distance", "one row of a tile too many", (("inner < DEPTH", "inner <= DEPTH"),)
    ),
    "wrong_shuffle_mask": Fault(
        "cuda",
        "embedding_bag",
        "a shuffle whose mask names half of the lanes that come",
        (("__shfl_sync(0xffffffffu, weight, j)", "__shfl_sync(0x0000ffffu, weight, j)"),),
    ),
    "order_of_blocks": Fault(
        "cuda",
        "label_smoothing_loss",
        "the last block adds up what other blocks may not have written yet",
        (
            (
                "float* __restrict__ losses, int samples, int classes",
                "float* losses, float* mean, int samples, int classes",
            ),
            (
                "smoothing * uniform);\n    }\n",
                "smoothing * uniform);\n    }\n"
                "    __syncthreads();\n"
                "    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {\n"
                "        float all = 0.0f, whole = 0.0f;\n"
                "        for (int i = 0; i < samples; i++) {\n"
                "            all += losses[i];\n"
                "            whole += weights[i];\n"
                "        }\n"
                "        *mean = all / whole;\n"
                "    }\n",
            ),
            (
                "losses.data_ptr<float>(), samples, classes,",
                "losses.data_ptr<float>(), mean.data_ptr<float>(), samples, classes,",
            ),
            (
                "    mean_kernel<<<1, THREADS, 0, stream>>>(\n"
                "        losses.data_ptr<float>(), w.data_ptr<float>(), mean.data_ptr<float>(), samples);\n",
                "",
            ),
        ),
    ),
    "wrong_last_column": Fault(
        "cuda",
        "bilinear_resize",
        "the last column takes its neighbour on the wrong side",
        (("{j, min(j + 1, width - 1)}", "{j, min(j + 1, width - 2)}"),),
    ),
    "wrong_for_nan": Fault(
        "cuda",
        "conv_relu_pool",
        "a maximum that passes NaN by",
        (
            (
                "most = larger(most, sums[channel][i] + bias[output]);",
                "most = fmaxf(most, sums[channel][i] + bias[output]);",
            ),
        ),
    ),
    "atomic_left_out": Fault(
        "cuda",
        "adaptive_norm_block",
        "warps add to one place in shared memory with no atomic operation",
        (
            (
                "    __syncthreads();  // before `partial` of an earlier call is overwritten\n"
                "    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;\n"
                "    __syncthreads();\n",
                "    __syncthreads();  // before `partial` of an earlier call is overwritten\n"
                "    if (threadIdx.x < WARPS) partial[threadIdx.x] = 0.0f;\n"
                "    __syncthreads();\n"
                "    if (threadIdx.x % 32 == 0) partial[0] += value;\n"
                "    __syncthreads();\n",
            ),
        ),
    ),
    "atomic_between_blocks_left_out": Fault(
        "cuda",
        "channel_stats",
        "blocks add to one place in global memory with no atomic operation",
        (
            ("        sums[blockIdx.x] = sum;\n", "        sums[blockIdx.x] = sum;\n        count[0] += size;\n"),
            (
                "float* __restrict__ largest,\n    int size) {",
                "float* __restrict__ largest,\n    float* count, int size) {",
            ),
            ("const float* __restrict__ largest,\n", "const float* __restrict__ largest, const float* counted,\n"),
            ("const float count = float(images) * size,", "const float count = counted[0] / channels,"),
            (
                "    auto mean = torch::empty",
                "    auto counted = torch::zeros({1}, options);\n    auto mean = torch::empty",
            ),
            ("largest.data_ptr<float>(), size);", "largest.data_ptr<float>(), counted.data_ptr<float>(), size);"),
            (
                "largest.data_ptr<float>(), mean.data_ptr<float>(),",
                "largest.data_ptr<float>(), counted.data_ptr<float>(), mean.data_ptr<float>(),",
            ),
        ),
    ),
    "too_many_threads": Fault(
        "cuda", "dequant_linear", "blocks of 2048 threads", (("THREADS = 128", "THREADS = 2048"),)
    ),
}

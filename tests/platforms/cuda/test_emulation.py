"""The emulation of CUDA threads: right kernels are right in every order, each planted fault is told with its line."""

from pathlib import Path

import pytest

from tests.platforms.cuda.programs import build, ran, run

pytestmark = pytest.mark.xdist_group("cuda_programs")  # they share the emulation's libraries

SOFTMAX = r"""
template <typename T, int BLOCK>
__global__ void softmax(const T* x, T* y, int n) {
    __shared__ float red[32], total;
    int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float m = -INFINITY;
    for (int i = threadIdx.x; i < n; i += BLOCK) m = fmaxf(m, (float)x[row * n + i]);
    #pragma unroll
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
    if (lane == 0) red[warp] = m;
    __syncthreads();
    m = red[0];
    for (int i = 1; i < BLOCK / 32; i++) m = fmaxf(m, red[i]);
    __syncthreads();
    float s = 0;
    for (int i = threadIdx.x; i < n; i += BLOCK) s += __expf((float)x[row * n + i] - m);
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
    if (lane == 0) red[warp] = s;
    __syncthreads();
    if (threadIdx.x == 0) { total = 0; for (int i = 0; i < BLOCK / 32; i++) total += red[i]; }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += BLOCK) y[row * n + i] = T(__expf((float)x[row * n + i] - m) / total);
}
int run() {
    const int rows = 8, n = 200;
    float *x, *y;
    cudaMalloc(&x, rows * n * sizeof(float)); cudaMalloc(&y, rows * n * sizeof(float));
    for (int i = 0; i < rows * n; i++) x[i] = sinf(i * 0.37f) * 3;
    softmax<float, 128><<<rows, 128>>>(x, y, n);
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += exp((double)x[r * n + i]);
        for (int i = 0; i < n; i++) worst = fmax(worst, fabs(exp((double)x[r * n + i]) / sum - y[r * n + i]));
    }
    printf("worst %s\n", worst < 1e-7 ? "small" : "large");
    return 0;
}
"""
MATMUL = r"""
#define T 8
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float as[T][T], bs[T][T];
    int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += T) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k0 + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k0 + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < T; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        SECOND;
    }
    c[row * n + column] = sum;
}
int run() {
    const int n = 32;
    float *a = new float[n * n], *b = new float[n * n], *c = new float[n * n];
    for (int i = 0; i < n * n; i++) { a[i] = i % 7; b[i] = i % 5; }
    matmul<<<dim3(n / T, n / T), dim3(T, T)>>>(a, b, c, n);
    int wrong = 0;
    for (int r = 0; r < n; r++) for (int q = 0; q < n; q++) {
        float s = 0;
        for (int k = 0; k < n; k++) s += a[r * n + k] * b[k * n + q];
        wrong += s != c[r * n + q];
    }
    printf("wrong: %d\n", wrong);
    return 0;
}
"""
RIGHT_MATMUL = MATMUL.replace("SECOND", "__syncthreads()")
RACING_MATMUL = MATMUL.replace("SECOND", "")
ORDERS = ("forward", "backward", "random:3")


def one_kernel(body: str, *, threads: int = 64, blocks: int = 1, check: str = "", more: str = "") -> str:
    """A program of one kernel `k(float* y, int n)` on 64 floats."""
    return f"""{more}
__global__ void k(float* y, int n) {{
{body}
}}
int run() {{
    float* y = new float[64];
    for (int i = 0; i < 64; i++) y[i] = -1;
    k<<<{blocks}, {threads}>>>(y, 64);
    {check or 'for (int i = 0; i < 64; i++) printf("%g ", y[i]);'}
    return 0;
}}
"""


@pytest.mark.parametrize(("text", "says"), [(SOFTMAX, "worst small"), (RIGHT_MATMUL, "wrong: 0")])
def test_a_right_kernel_is_right_in_every_order_and_draws_no_report(tmp_path: Path, text: str, says: str) -> None:
    program = build(text, tmp_path)
    for order in ORDERS:
        assert says in run(program, order).text
    for kind in ("thread", "address"):
        found = ran(text, tmp_path, kind)
        assert (found.status, found.text.strip()) == (0, says)


def test_a_barrier_that_is_missing_is_a_data_race_and_a_wrong_result_in_other_orders(tmp_path: Path) -> None:
    found = ran(RACING_MATMUL, tmp_path, "thread")
    assert found.status == 77 and "data race" in found.text and "kernel.cu:" in found.text
    program = build(RACING_MATMUL, tmp_path)
    assert any("wrong: 0" not in run(program, order).text for order in ORDERS)


def test_a_write_behind_global_memory_is_told_with_its_line(tmp_path: Path) -> None:
    found = ran(one_kernel("int i = threadIdx.x;\nif (i <= n) y[i] = 1;", threads=96), tmp_path, "address")
    assert "heap-buffer-overflow" in found.text and "WRITE of size 4" in found.text and "kernel.cu:4" in found.text


@pytest.mark.parametrize("declared", ["__shared__ float s[64];", "__shared__ __align__(16) float s[64];"])
def test_a_read_behind_shared_memory_is_told_with_its_line(tmp_path: Path, declared: str) -> None:
    body = f"{declared}\ns[threadIdx.x] = 1; __syncthreads();\ny[threadIdx.x] = s[threadIdx.x + 1];"
    found = ran(one_kernel(body), tmp_path, "address")
    assert "heap-buffer-overflow" in found.text and "kernel.cu:5" in found.text


def test_a_read_behind_dynamic_shared_memory_is_told(tmp_path: Path) -> None:
    text = one_kernel("extern __shared__ float s[]; s[threadIdx.x] = 1; __syncthreads();\ny[0] = s[64];")
    found = ran(text.replace("<<<1, 64>>>", "<<<1, 64, 64 * sizeof(float)>>>"), tmp_path, "address")
    assert "heap-buffer-overflow" in found.text and "kernel.cu:4" in found.text


def test_shared_memory_that_was_never_written_reads_as_nan_in_each_block(tmp_path: Path) -> None:
    body = "__shared__ float s[64]; if (blockIdx.x == 0) s[threadIdx.x] = 1; else y[threadIdx.x] = s[threadIdx.x];"
    assert "nan" in ran(one_kernel(body, blocks=2), tmp_path).text


def test_threads_that_meet_different_barriers_are_told(tmp_path: Path) -> None:
    body = "if (threadIdx.x < 32)\n__syncthreads();\nelse\n__syncthreads();"
    found = ran(one_kernel(body), tmp_path)
    assert found.status == 66 and "barrier divergence" in found.text
    assert "32 threads wait at __syncthreads, line 4, first thread (0,0,0)" in found.text and "line 6" in found.text


def test_a_shuffle_that_waits_for_lanes_that_have_returned_is_a_deadlock(tmp_path: Path) -> None:
    body = "if (threadIdx.x >= 16) return;\ny[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1.0f, 1);"
    found = ran(one_kernel(body, threads=32), tmp_path)
    assert found.status == 66 and "deadlock" in found.text
    assert (
        "16 threads wait at a shuffle, line 4 (mask 0xffffffff)" in found.text and "16 of the block have" in found.text
    )


def test_a_mask_that_leaves_its_caller_out_is_told(tmp_path: Path) -> None:
    found = ran(one_kernel("y[threadIdx.x] = __shfl_down_sync(0x0000ffff, 1.0f, 1);", threads=32), tmp_path)
    assert found.status == 66 and "thread (16,0,0) (lane 16) calls it with mask 0x0000ffff" in found.text


def test_lanes_at_different_warp_operations_are_told(tmp_path: Path) -> None:
    body = "if (threadIdx.x < 16)\n__syncwarp();\nelse\n__syncwarp();"
    found = ran(one_kernel(body, threads=32), tmp_path)
    assert found.status == 66 and "warp divergence" in found.text


def test_what_a_lane_gives_that_takes_no_part_is_nan(tmp_path: Path) -> None:
    body = "if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0x0000ffff, 1.0f, 20);"
    assert ran(one_kernel(body, threads=32), tmp_path).text.startswith(("nan", "-nan"))


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        ("<<<1, 2048>>>", "1024 is the most"),
        ("<<<0, 32>>>", "a dimension is 0"),
        ("<<<dim3(1, 70000), 32>>>", "larger than a GPU takes"),
        ("<<<1, 32, 60000>>>", "without cudaFuncSetAttribute"),
    ],
)
def test_a_launch_that_a_gpu_refuses_is_refused(tmp_path: Path, launch: str, why: str) -> None:
    found = ran(one_kernel("y[0] = 1;").replace("<<<1, 64>>>", launch), tmp_path)
    assert found.status == 66 and why in found.text


def test_votes_matches_and_reductions_of_a_warp(tmp_path: Path) -> None:
    body = """
    int t = threadIdx.x;
    unsigned odd = __ballot_sync(~0u, t & 1), same = __match_any_sync(~0u, t / 8);
    bool ok = odd == 0xaaaaaaaau && same == 0xffu << (t / 8 * 8);
    ok = ok && __any_sync(~0u, t == 31) && !__all_sync(~0u, t == 31) && __all_sync(~0u, t < 32);
    ok = ok && __reduce_add_sync(~0u, t) == 496 && __reduce_max_sync(~0u, t) == 31;
    ok = ok && __shfl_up_sync(~0u, t, 1) == (t ? t - 1 : 0) && __shfl_sync(~0u, t, 3, 8) == t / 8 * 8 + 3;
    ok = ok && __syncthreads_count(t < 5) == 5 && __syncthreads_or(t == 7) && !__syncthreads_and(t == 7);
    y[t] = ok;"""
    check = 'int all = 0; for (int i = 0; i < 32; i++) all += y[i] == 1; printf("%d", all);'
    program = build(one_kernel(body, threads=32, check=check), tmp_path)
    assert [run(program, order).text for order in ORDERS] == ["32"] * 3


def test_atomics_count_and_a_thread_may_wait_for_another(tmp_path: Path) -> None:
    body = """
    atomicAdd(&y[0], 1.0f); atomicMax((int*)&y[1], (int)threadIdx.x);
    __shared__ int lock; if (threadIdx.x == 0) lock = 0; __syncthreads();
    if (threadIdx.x == 5) { while (atomicAdd(&lock, 0) == 0) ; y[2] = 7; }
    if (threadIdx.x == 40) atomicExch(&lock, 1);"""
    check = 'printf("%g %d %g", y[0], ((int*)y)[1], y[2]);'
    more = "__global__ void zero(float* y) { y[0] = 0; ((int*)y)[1] = -5; }"
    text = one_kernel(body, check=check, more=more).replace("k<<<", "zero<<<1, 1>>>(y); k<<<")
    program = build(text, tmp_path)
    assert [run(program, order).text for order in ORDERS] == ["64 63 7"] * 3


def test_narrow_types_round_and_vectors_are_aligned(tmp_path: Path) -> None:
    body = """
    __half h = __float2half(1.0f / 3); __half2 p = __floats2half2_rn(1, 2), q = __hfma2(p, p, p);
    __nv_bfloat16 b = __float2bfloat16(1.0f / 3);
    y[0] = __half2float(h); y[1] = __low2float(q) + __high2float(q);
    y[2] = float(b); y[3] = sizeof(float4) + alignof(half2);
    half acc = h; acc += __float2half(1.0f); y[4] = acc > h ? 1 : 0;
    y[5] = rsqrtf(4.0f) + max(1, 2) + fminf(1.0f, 2.0f);"""
    found = ran(
        one_kernel(body, threads=1, check='printf("%.6f %g %.6f %g %g %g", y[0], y[1], y[2], y[3], y[4], y[5]);'),
        tmp_path,
    )
    assert found.text == "0.333252 8 0.333984 20 1 3.5"


def test_cooperative_groups_of_a_block_and_tiles(tmp_path: Path) -> None:
    body = """
    namespace cg = cooperative_groups;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    float v = cg::reduce(tile, float(tile.thread_rank()), cg::plus<float>());
    block.sync();
    y[block.thread_rank()] = v;"""
    assert ran(one_kernel(body), tmp_path).text.split() == ["120"] * 64


def test_a_tile_of_a_tensor_core_is_a_matrix_product(tmp_path: Path) -> None:
    text = r"""
#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, const half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
int run() {
    half *a = new half[256], *b = new half[256]; float* c = new float[256];
    for (int i = 0; i < 256; i++) { a[i] = __float2half(i % 7); b[i] = __float2half(i % 5); }
    k<<<1, 32>>>(a, b, c);
    int wrong = 0;
    for (int r = 0; r < 16; r++) for (int q = 0; q < 16; q++) {
        float s = 0; for (int i = 0; i < 16; i++) s += float(a[r * 16 + i]) * float(b[q * 16 + i]);
        wrong += s != c[r * 16 + q];
    }
    printf("wrong: %d", wrong);
    return 0;
}
"""
    assert ran(text, tmp_path).text == "wrong: 0"
    assert ran(text, tmp_path, "thread").text == "wrong: 0"


def test_dynamic_shared_memory_at_file_scope_and_constants(tmp_path: Path) -> None:
    text = r"""
extern __shared__ float buffer[];
__constant__ float factors[2];
__device__ float twice(float x) { return x * factors[0] + factors[1]; }
template <typename T> __global__ void k(T* y) {
    buffer[threadIdx.x] = twice(threadIdx.x); __syncthreads();
    y[threadIdx.x] = buffer[(threadIdx.x + 1) % blockDim.x];
}
int run() {
    float given[2] = {2, 1}, *y = new float[4];
    cudaMemcpyToSymbol(factors, given, sizeof given);
    auto kernel = k<float>;
    kernel<<<1, 4, 4 * sizeof(float)>>>(y);
    k<<<1, 4, 4 * sizeof(float)>>>(y);
    printf("%g %g %g %g", y[0], y[1], y[2], y[3]);
    return 0;
}
"""
    assert ran(text, tmp_path).text == "3 5 7 1"


def test_a_view_of_a_tensor_that_is_known_cuts_nothing_off_it(tmp_path: Path) -> None:
    text = r"""
extern "C" void cuh_record(const char* path, int run, uint64_t limit);
extern "C" void cuh_region(const void* place, uint64_t bytes);
__global__ void k(float* y) { *y = 1; }
static float tensor[8];
void recorded() {
    cuh_record("RECORD", 1, 1 << 20);
    k<<<1, 1>>>(tensor + 5);
    cuh_record(nullptr, 0, 0);
    FILE* file = fopen("RECORD", "rb");
    if (fgetc(file) == 'M') {
        char* place; uint64_t bytes;
        fread(&place, 8, 1, file); fread(&bytes, 8, 1, file);
        printf("%d:%d ", int(place - (char*)tensor), int(bytes));
    } else printf("no memory");
    fclose(file);
}
int run() {
    cuh_region(tensor, 32); cuh_region(tensor, 16); cuh_region(tensor + 4, 16);
    recorded();
    recorded();  // what was given for one record is forgotten with it
    return 0;
}
"""
    assert ran(text.replace("RECORD", str(tmp_path / "record")), tmp_path).text == "0:32 no memory"

// What a kernel calls beside mathematics: its place in the grid, barriers, warp operations, atomics, groups of threads.
#pragma once
#include "launch.h"
#include "warp.h"

#define threadIdx (cuh::thread_index())
#define blockIdx (cuh::block_index())
#define blockDim (cuh::block_size())
#define gridDim (cuh::grid_size())
inline constexpr int warpSize = 32;
#define __syncthreads() cuh::sync_block(__LINE__)
#define __syncthreads_count(p) cuh::sync_block(__LINE__, cuh::Vote::count, (p) != 0)
#define __syncthreads_and(p) cuh::sync_block(__LINE__, cuh::Vote::all, (p) != 0)
#define __syncthreads_or(p) cuh::sync_block(__LINE__, cuh::Vote::any, (p) != 0)
#define __syncwarp(...) cuh::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(mask, ...) cuh::shuffle('i', __LINE__, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) cuh::shuffle('x', __LINE__, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) cuh::shuffle('d', __LINE__, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) cuh::shuffle('u', __LINE__, mask, __VA_ARGS__)
#define __ballot_sync(mask, p) cuh::ballot(__LINE__, mask, (p) != 0)
#define __any_sync(mask, p) (cuh::ballot(__LINE__, mask, (p) != 0) != 0)
#define __all_sync(mask, p) (cuh::ballot(__LINE__, mask, !(p)) == 0)
#define __match_any_sync(mask, value) cuh::match_any(__LINE__, mask, value)
#define __reduce_add_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return a + b; })
#define __reduce_max_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return a < b ? b : a; })
#define __reduce_min_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return b < a ? b : a; })
#define __reduce_and_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return a & b; })
#define __reduce_or_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return a | b; })
#define __reduce_xor_sync(mask, v) cuh::reduce_warp(__LINE__, mask, v, [](auto a, auto b) { return a ^ b; })
#define __trap() cuh::fail("__trap() in line " + std::to_string(__LINE__))

// Lanes that run together are not defined while lanes diverge: each lane is told that it is alone with those that wait
// nowhere, which is the whole warp before any of them waits.
CUH_UNSEEN inline unsigned __activemask() {
  const unsigned warp = cuh::engine.current->warp;
  return cuh::lanes_of_warp(warp) & ~cuh::engine.waiting[warp];
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); cuh::spin(); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { cuh::give_way(); }
inline long long clock64() { return cuh::ticks(); }
#define clock() cuh::ticks()
inline unsigned long long globaltimer() { return static_cast<unsigned long long>(cuh::ticks()); }
inline bool __isGlobal(const void*) { return true; }

namespace cuh {
template <class T>
using Same = std::type_identity_t<T>;

template <class T, class Change>
T change(T* place, Change with) {
  static_assert(sizeof(T) <= 8, "atomics of at most 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  spin();
  Bits* bits = reinterpret_cast<Bits*>(place);
  Bits before = __atomic_load_n(bits, __ATOMIC_ACQUIRE);
  for (;;) {
    T old;
    std::memcpy(&old, &before, sizeof old);
    const T made = with(old);
    Bits after = 0;
    std::memcpy(&after, &made, sizeof made);
    if (__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return old;
  }
}
}  // namespace cuh

template <class T> T atomicAdd(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return T(old + v); }); }
template <class T> T atomicSub(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return T(old - v); }); }
template <class T> T atomicMax(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return old < v ? v : old; }); }
template <class T> T atomicMin(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return v < old ? v : old; }); }
template <class T> T atomicExch(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T) { return v; }); }
template <class T> T atomicAnd(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return T(old & v); }); }
template <class T> T atomicOr(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return T(old | v); }); }
template <class T> T atomicXor(T* p, cuh::Same<T> v) { return cuh::change(p, [&](T old) { return T(old ^ v); }); }
template <class T> T atomicCAS(T* p, cuh::Same<T> compare, cuh::Same<T> v) {
  return cuh::change(p, [&](T old) { return old == compare ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned most) {
  return cuh::change(p, [&](unsigned old) { return old >= most ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned most) {
  return cuh::change(p, [&](unsigned old) { return old == 0 || old > most ? most : old - 1; });
}
template <class T> T atomicAdd_block(T* p, cuh::Same<T> v) { return atomicAdd(p, v); }
template <class T> T atomicAdd_system(T* p, cuh::Same<T> v) { return atomicAdd(p, v); }

// ---- copies that run beside the thread: here they are done at once ----

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  std::memcpy(to, from, bytes - zeros);
  std::memset(static_cast<char*>(to) + (bytes - zeros), 0, zeros);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}

// ---- cooperative groups: a block, and tiles of a warp ----

namespace cooperative_groups {

struct thread_block {
  void sync(int line = __builtin_LINE()) const { cuh::sync_block(line); }
  unsigned thread_rank() const {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const { return size(); }
  dim3 group_index() const { return blockIdx; }
  dim3 thread_index() const { return threadIdx; }
  dim3 group_dim() const { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned width, class Parent = thread_block>
struct thread_block_tile {
  static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
  unsigned mask() const {
    if constexpr (width == 32) return ~0u;
    else return ((1u << width) - 1) << (cuh::lane_index() / width * width);
  }
  unsigned thread_rank() const { return cuh::lane_index() % width; }
  static constexpr unsigned size() { return width; }
  static constexpr unsigned num_threads() { return width; }
  unsigned meta_group_rank() const { return thread_block{}.thread_rank() / width; }
  unsigned meta_group_size() const { return (thread_block{}.size() + width - 1) / width; }
  void sync(int line = __builtin_LINE()) const { cuh::sync_warp(line, mask()); }
  template <class T> T shfl(T v, int from, int line = __builtin_LINE()) const {
    return cuh::shuffle('i', line, mask(), v, from, int(width));
  }
  template <class T> T shfl_down(T v, unsigned by, int line = __builtin_LINE()) const {
    return cuh::shuffle('d', line, mask(), v, int(by), int(width));
  }
  template <class T> T shfl_up(T v, unsigned by, int line = __builtin_LINE()) const {
    return cuh::shuffle('u', line, mask(), v, int(by), int(width));
  }
  template <class T> T shfl_xor(T v, unsigned with, int line = __builtin_LINE()) const {
    return cuh::shuffle('x', line, mask(), v, int(with), int(width));
  }
  bool any(int p, int line = __builtin_LINE()) const { return cuh::ballot(line, mask(), p) != 0; }
  bool all(int p, int line = __builtin_LINE()) const { return cuh::ballot(line, mask(), !p) == 0; }
  unsigned ballot(int p, int line = __builtin_LINE()) const {
    return cuh::ballot(line, mask(), p) >> (cuh::lane_index() / width * width);
  }
};
template <unsigned width, class Parent>
thread_block_tile<width, Parent> tiled_partition(const Parent&) { return {}; }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <unsigned width, class Parent, class T, class Combine>
T reduce(const thread_block_tile<width, Parent>& tile, T value, Combine combine, int line = __builtin_LINE()) {
  for (unsigned by = width / 2; by; by /= 2) value = combine(value, tile.shfl_xor(value, by, line));
  return value;
}
template <class Group> void sync(const Group& group, int line = __builtin_LINE()) { group.sync(line); }

}  // namespace cooperative_groups

// ---- nvcuda::wmma: a lane holds its share of the tile; the products are the sums that a tensor core makes ----

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}

template <class T> struct Stored { using type = T; };
template <> struct Stored<precision::tf32> { using type = float; };

// A lane holds every 32nd element, from its own number on: which one holds what is not defined on a GPU either.
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  using Element = typename Stored<T>::type;
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m, columns = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr int num_elements = rows * columns / 32;
  Element x[num_elements];
};

inline float __float_to_tf32(float value) {
  return cuh::float_of_bits((cuh::bits_of_float(value) + 0x1000) & 0xffffe000u);
}

template <class Use, int m, int n, int k, class T, class Layout, class V>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& into, const V& value) {
  for (auto& each : into.x) each = static_cast<typename Stored<T>::type>(value);
}

template <class Use, int m, int n, int k, class T, class Layout, class S>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& into, const S* from, unsigned pitch,
                      layout_t layout = mem_row_major, int line = __builtin_LINE()) {
  using F = fragment<Use, m, n, k, T, Layout>;
  const bool by_column = std::is_same_v<Layout, col_major> || (std::is_void_v<Layout> && layout == mem_col_major);
  for (int i = 0; i < F::num_elements; i++) {
    const int number = i * 32 + int(cuh::lane_index()), row = number / F::columns, column = number % F::columns;
    into.x[i] = from[by_column ? size_t(column) * pitch + row : size_t(row) * pitch + column];
  }
  cuh::sync_warp(line);
}

template <int m, int n, int k, class T, class S>
void store_matrix_sync(S* to, const fragment<accumulator, m, n, k, T>& from, unsigned pitch, layout_t layout,
                       int line = __builtin_LINE()) {
  using F = fragment<accumulator, m, n, k, T>;
  for (int i = 0; i < F::num_elements; i++) {
    const int number = i * 32 + int(cuh::lane_index()), row = number / n, column = number % n;
    to[layout == mem_col_major ? size_t(column) * pitch + row
                               : size_t(row) * pitch + column] = from.x[i];
  }
  cuh::sync_warp(line);
}

template <int m, int n, int k, class D, class A, class LA, class B, class LB, class C>
void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, A, LA>& a,
              const fragment<matrix_b, m, n, k, B, LB>& b, const fragment<accumulator, m, n, k, C>& c,
              int line = __builtin_LINE()) {
  struct Held { const void *a, *b; } held{&a, &b};
  const Held* mine = &held;
  // Each lane tells where its fragments lie; all read them before any goes on.
  const Held* lanes[32];
  for (int lane = 0; lane < 32; lane++) lanes[lane] = cuh::shuffle('i', line, ~0u, mine, lane);
  using FA = fragment<matrix_a, m, n, k, A, LA>;
  using FB = fragment<matrix_b, m, n, k, B, LB>;
  cuh::sync_warp(line);
  std::array<D, size_t(m * n / 32)> made;
  for (int i = 0; i < m * n / 32; i++) {
    const int number = i * 32 + int(cuh::lane_index()), row = number / n, column = number % n;
    float sum = float(c.x[i]);
    for (int inner = 0; inner < k; inner++) {
      const int at_a = row * k + inner, at_b = inner * n + column;
      sum += float(static_cast<const FA*>(lanes[at_a % 32]->a)->x[at_a / 32]) *
             float(static_cast<const FB*>(lanes[at_b % 32]->b)->x[at_b / 32]);
    }
    made[i] = D(sum);
  }
  cuh::sync_warp(line);
  for (int i = 0; i < m * n / 32; i++) d.x[i] = made[i];
}

}  // namespace nvcuda::wmma

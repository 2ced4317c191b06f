// What clang needs to compile HIP kernels without ROCm: the language's words and the functions that kernels call. It is
// for resources and errors; nothing that it makes is run. Functions that AMD's device library has and the processor lacks
// stand here in a shorter form, so that registers and instructions are about those of the real ones.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __restrict __restrict__
#define HIP_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define HIP_BOUNDS_2(threads, waves) HIP_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define HIP_BOUNDS(first, second, name, ...) name
#define __launch_bounds__(...) HIP_BOUNDS(__VA_ARGS__, HIP_BOUNDS_2, HIP_BOUNDS_1)(__VA_ARGS__)
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_SYMBOL(name) name
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#define __HIPCC__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define USE_ROCM 1
#define HIPD static __device__ inline __attribute__((always_inline))

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define M_PI 3.14159265358979323846
#define M_E 2.71828182845904523536
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880
#define M_2_SQRTPI 1.12837916709551257390
#define HIP_INF_F __builtin_inff()
#define HIP_NAN_F __builtin_nanf("")
#define HIP_PI_F 3.141592654f
#define assert(condition) ((condition) ? (void)0 : __builtin_trap())

typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t; typedef unsigned long uint64_t;
typedef unsigned long size_t; typedef long ptrdiff_t; typedef unsigned long uintptr_t; typedef long intptr_t;
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned uint; typedef unsigned long ulong;
typedef void* hipStream_t; typedef void* hipEvent_t; typedef int hipError_t;

#define HIP_VECTOR(T, name, align1, align2, align4)                                     \
  struct alignas(align1) name##1 { T x; };                                              \
  struct alignas(align2) name##2 { T x, y; };                                           \
  struct name##3 { T x, y, z; };                                                        \
  struct alignas(align4) name##4 { T x, y, z, w; };                                     \
  HIPD name##1 make_##name##1(T x) { return {x}; }                                      \
  HIPD name##2 make_##name##2(T x, T y) { return {x, y}; }                              \
  HIPD name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                      \
  HIPD name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HIP_VECTOR(signed char, char, 1, 2, 4)
HIP_VECTOR(unsigned char, uchar, 1, 2, 4)
HIP_VECTOR(short, short, 2, 4, 8)
HIP_VECTOR(unsigned short, ushort, 2, 4, 8)
HIP_VECTOR(int, int, 4, 8, 16)
HIP_VECTOR(unsigned, uint, 4, 8, 16)
HIP_VECTOR(long, long, 8, 16, 16)
HIP_VECTOR(unsigned long, ulong, 8, 16, 16)
HIP_VECTOR(long long, longlong, 8, 16, 16)
HIP_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
HIP_VECTOR(float, float, 4, 8, 16)
HIP_VECTOR(double, double, 8, 16, 16)
#include "vector_operators.h"

struct dim3 {
  unsigned x, y, z;
  __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  __host__ __device__ constexpr dim3(uint3 each) : x(each.x), y(each.y), z(each.z) {}
  __host__ __device__ operator uint3() const { return {x, y, z}; }
};

// ---- the place in the grid, barriers, operations of a wavefront ----

HIPD uint3 hipd_thread() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
HIPD uint3 hipd_block() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
HIPD dim3 hipd_block_size() {
  return dim3(__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z());
}
HIPD dim3 hipd_grid_size() {  // the processor tells how many threads a grid has
  return dim3(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
              __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
              __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z());
}
#define threadIdx (hipd_thread())
#define blockIdx (hipd_block())
#define blockDim (hipd_block_size())
#define gridDim (hipd_grid_size())
constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;

HIPD void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
HIPD void __syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
HIPD void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
HIPD void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
HIPD void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
HIPD void __trap() { __builtin_trap(); }
HIPD long long clock64() { return __builtin_readcyclecounter(); }
HIPD long long clock() { return __builtin_readcyclecounter(); }

HIPD unsigned __lane_id() {
  const unsigned low = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
  return warpSize == 32 ? low : __builtin_amdgcn_mbcnt_hi(~0u, low);
}
HIPD unsigned long long __ballot(int p) {
#if __AMDGCN_WAVEFRONT_SIZE == 64
  return __builtin_amdgcn_ballot_w64(p != 0);
#else
  return __builtin_amdgcn_ballot_w32(p != 0);
#endif
}
HIPD int __any(int p) { return __ballot(p) != 0; }
HIPD int __all(int p) { return __ballot(!p) == 0; }
HIPD unsigned long long __activemask() { return __ballot(1); }

template <class T>
HIPD T hipd_from_lane(T value, int lane) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  constexpr int words = (sizeof(T) + 3) / 4;
  int held[words] = {};
  __builtin_memcpy(held, &value, sizeof(T));
  for (int i = 0; i < words; i++) held[i] = __builtin_amdgcn_ds_bpermute(lane * 4, held[i]);
  __builtin_memcpy(&value, held, sizeof(T));
  return value;
}
template <class T> HIPD T __shfl(T value, int from, int width = warpSize) {
  return hipd_from_lane(value, (int(__lane_id()) & ~(width - 1)) + (from & (width - 1)));
}
template <class T> HIPD T __shfl_up(T value, unsigned by, int width = warpSize) {
  const int lane = __lane_id(), other = lane - int(by);
  return hipd_from_lane(value, other < (lane & ~(width - 1)) ? lane : other);
}
template <class T> HIPD T __shfl_down(T value, unsigned by, int width = warpSize) {
  const int lane = __lane_id();
  return hipd_from_lane(value, (lane & (width - 1)) + int(by) >= width ? lane : lane + int(by));
}
template <class T> HIPD T __shfl_xor(T value, int with, int width = warpSize) {
  const int lane = __lane_id(), other = lane ^ with;
  return hipd_from_lane(value, other >= ((lane + width) & ~(width - 1)) ? lane : other);
}
template <class M, class T> HIPD T __shfl_sync(M, T value, int from, int width = warpSize) { return __shfl(value, from, width); }
template <class M, class T> HIPD T __shfl_up_sync(M, T value, unsigned by, int width = warpSize) { return __shfl_up(value, by, width); }
template <class M, class T> HIPD T __shfl_down_sync(M, T value, unsigned by, int width = warpSize) { return __shfl_down(value, by, width); }
template <class M, class T> HIPD T __shfl_xor_sync(M, T value, int with, int width = warpSize) { return __shfl_xor(value, with, width); }
template <class M> HIPD unsigned long long __ballot_sync(M, int p) { return __ballot(p); }
template <class M> HIPD int __any_sync(M, int p) { return __any(p); }
template <class M> HIPD int __all_sync(M, int p) { return __all(p); }

// All that a block votes goes through shared memory.
HIPD int __syncthreads_count(int p) {
  static __shared__ int votes;
  __syncthreads();
  votes = 0;
  __syncthreads();
  __hip_atomic_fetch_add(&votes, p != 0, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __syncthreads();
  return votes;
}
HIPD int __syncthreads_or(int p) { return __syncthreads_count(p) != 0; }
HIPD int __syncthreads_and(int p) { return __syncthreads_count(!p) == 0; }

// ---- atomics ----

template <class T> struct HipdSame { typedef T type; };
#define HIPD_ATOMIC(name, expression)                                       \
  template <class T> HIPD T name(T* p, typename HipdSame<T>::type v) { return expression; }
#define HIPD_FETCH(op) __hip_atomic_fetch_##op(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
HIPD_ATOMIC(atomicAdd, HIPD_FETCH(add))
HIPD_ATOMIC(atomicSub, HIPD_FETCH(sub))
HIPD_ATOMIC(atomicMin, HIPD_FETCH(min))
HIPD_ATOMIC(atomicMax, HIPD_FETCH(max))
HIPD_ATOMIC(atomicAnd, HIPD_FETCH(and))
HIPD_ATOMIC(atomicOr, HIPD_FETCH(or))
HIPD_ATOMIC(atomicXor, HIPD_FETCH(xor))
HIPD_ATOMIC(unsafeAtomicAdd, HIPD_FETCH(add))
HIPD_ATOMIC(atomicAdd_block, __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP))
HIPD_ATOMIC(atomicAdd_system, __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM))
HIPD_ATOMIC(atomicExch, __hip_atomic_exchange(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
template <class T> HIPD T atomicCAS(T* p, typename HipdSame<T>::type compare, typename HipdSame<T>::type v) {
  __hip_atomic_compare_exchange_strong(p, &compare, v, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return compare;
}
HIPD unsigned atomicInc(unsigned* p, unsigned most) {
  return __builtin_amdgcn_atomic_inc32(p, most, __ATOMIC_RELAXED, "agent");
}
HIPD unsigned atomicDec(unsigned* p, unsigned most) {
  return __builtin_amdgcn_atomic_dec32(p, most, __ATOMIC_RELAXED, "agent");
}

// ---- mathematics ----

HIPD float expf(float x) { return __builtin_expf(x); }
HIPD float exp(float x) { return __builtin_expf(x); }
HIPD float exp2f(float x) { return __builtin_exp2f(x); }
HIPD float exp2(float x) { return __builtin_exp2f(x); }
HIPD float exp10f(float x) { return __builtin_exp10f(x); }
HIPD float exp10(float x) { return __builtin_exp10f(x); }
HIPD float logf(float x) { return __builtin_logf(x); }
HIPD float log(float x) { return __builtin_logf(x); }
HIPD float log2f(float x) { return __builtin_log2f(x); }
HIPD float log2(float x) { return __builtin_log2f(x); }
HIPD float log10f(float x) { return __builtin_log10f(x); }
HIPD float log10(float x) { return __builtin_log10f(x); }
HIPD float sqrtf(float x) { return __builtin_sqrtf(x); }
HIPD float sqrt(float x) { return __builtin_sqrtf(x); }
HIPD double sqrt(double x) { return __builtin_sqrt(x); }
HIPD float fabsf(float x) { return __builtin_fabsf(x); }
HIPD float fabs(float x) { return __builtin_fabsf(x); }
HIPD double fabs(double x) { return __builtin_fabs(x); }
HIPD float floorf(float x) { return __builtin_floorf(x); }
HIPD float floor(float x) { return __builtin_floorf(x); }
HIPD double floor(double x) { return __builtin_floor(x); }
HIPD float ceilf(float x) { return __builtin_ceilf(x); }
HIPD float ceil(float x) { return __builtin_ceilf(x); }
HIPD double ceil(double x) { return __builtin_ceil(x); }
HIPD float truncf(float x) { return __builtin_truncf(x); }
HIPD float trunc(float x) { return __builtin_truncf(x); }
HIPD double trunc(double x) { return __builtin_trunc(x); }
HIPD float rintf(float x) { return __builtin_rintf(x); }
HIPD float rint(float x) { return __builtin_rintf(x); }
HIPD double rint(double x) { return __builtin_rint(x); }
HIPD float nearbyintf(float x) { return __builtin_nearbyintf(x); }
HIPD float nearbyint(float x) { return __builtin_nearbyintf(x); }
HIPD double nearbyint(double x) { return __builtin_nearbyint(x); }
HIPD float roundf(float x) { return __builtin_roundf(x); }
HIPD float round(float x) { return __builtin_roundf(x); }
HIPD double round(double x) { return __builtin_round(x); }
HIPD float sinf(float x) { return __builtin_sinf(x); }
HIPD float sin(float x) { return __builtin_sinf(x); }
HIPD float cosf(float x) { return __builtin_cosf(x); }
HIPD float cos(float x) { return __builtin_cosf(x); }

// In double precision: the number of steps is about that of the library.
HIPD double hipd_ladder(double x) {
  double sum = 1.0;
  for (int i = 12; i > 0; i--) sum = __builtin_fma(sum, x / i, 1.0);
  return sum;
}
HIPD double exp(double x) {
  const double n = __builtin_rint(x * 1.4426950408889634);
  return __builtin_amdgcn_ldexp(hipd_ladder(__builtin_fma(n, -0.69314718055994531, x)), int(n));
}
HIPD double log(double x) {
  const double m = __builtin_amdgcn_frexp_mant(x), s = (m - 1.0) / (m + 1.0);
  return __builtin_fma(double(__builtin_amdgcn_frexp_exp(x)), 0.69314718055994531, 2.0 * s * hipd_ladder(s * s));
}
HIPD double exp2(double x) { return exp(x * 0.69314718055994531); }
HIPD double log2(double x) { return log(x) * 1.4426950408889634; }
HIPD double log10(double x) { return log(x) * 0.43429448190325183; }
HIPD double sin(double x) { return x * hipd_ladder(x * x); }
HIPD double cos(double x) { return hipd_ladder(x * x); }
HIPD double pow(double x, double y) { return exp(y * log(x)); }
HIPD double tanh(double x) { const double e = exp(2.0 * x); return (e - 1.0) / (e + 1.0); }
HIPD double erf(double x) { return 1.0 - hipd_ladder(x) * exp(-x * x); }
HIPD double erfc(double x) { return 1.0 - erf(x); }
HIPD double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

HIPD float hipd_ladderf(float x) {
  float sum = 1.0f;
  for (int i = 6; i > 0; i--) sum = __builtin_fmaf(sum, x * (1.0f / i), 1.0f);
  return sum;
}
HIPD float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPD double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
HIPD float fminf(float a, float b) { return __builtin_fminf(a, b); }
HIPD float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
HIPD float fmin(float a, float b) { return __builtin_fminf(a, b); }
HIPD float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
HIPD double fmin(double a, double b) { return __builtin_fmin(a, b); }
HIPD double fmax(double a, double b) { return __builtin_fmax(a, b); }
HIPD float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
HIPD double copysign(double a, double b) { return __builtin_copysign(a, b); }
HIPD float copysign(float a, float b) { return __builtin_copysignf(a, b); }
HIPD float fmodf(float a, float b) { return a - b * __builtin_truncf(a / b); }
HIPD double fmod(double a, double b) { return a - b * __builtin_trunc(a / b); }
HIPD float fmod(float a, float b) { return fmodf(a, b); }
HIPD float ldexpf(float x, int n) { return __builtin_amdgcn_ldexpf(x, n); }
HIPD double ldexp(double x, int n) { return __builtin_amdgcn_ldexp(x, n); }
HIPD float powf(float x, float y) { return __builtin_exp2f(y * __builtin_log2f(x)); }
HIPD float pow(float x, float y) { return powf(x, y); }
HIPD float expm1f(float x) { return x * hipd_ladderf(x); }
HIPD float log1pf(float x) { return __builtin_logf(1.0f + x); }
HIPD double expm1(double x) { return exp(x) - 1.0; }
HIPD double log1p(double x) { return log(1.0 + x); }
HIPD float tanf(float x) { return __builtin_sinf(x) / __builtin_cosf(x); }
HIPD float tanhf(float x) { const float e = __builtin_expf(2.0f * x); return (e - 1.0f) / (e + 1.0f); }
HIPD float sinhf(float x) { return 0.5f * (__builtin_expf(x) - __builtin_expf(-x)); }
HIPD float coshf(float x) { return 0.5f * (__builtin_expf(x) + __builtin_expf(-x)); }
HIPD float asinf(float x) { return x * hipd_ladderf(x * x); }
HIPD float acosf(float x) { return 1.570796327f - asinf(x); }
HIPD float atanf(float x) { return x * hipd_ladderf(-x * x); }
HIPD float atan2f(float y, float x) { return atanf(y / x); }
HIPD float erff(float x) { return 1.0f - hipd_ladderf(x) * __builtin_expf(-x * x); }
HIPD float erfcf(float x) { return hipd_ladderf(x) * __builtin_expf(-x * x); }
HIPD float tanh(float x) { return tanhf(x); }
HIPD float erf(float x) { return erff(x); }
HIPD float expm1(float x) { return expm1f(x); }
HIPD float log1p(float x) { return log1pf(x); }
HIPD float tan(float x) { return tanf(x); }
HIPD float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
HIPD float cbrtf(float x) { return powf(x, 0.33333333f); }
HIPD float hypotf(float x, float y) { return __builtin_sqrtf(x * x + y * y); }
HIPD float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
HIPD float rsqrt(float x) { return rsqrtf(x); }
HIPD float __expf(float x) { return __builtin_exp2f(x * 1.442695041f); }
HIPD float __exp10f(float x) { return __builtin_exp2f(x * 3.321928095f); }
HIPD float __logf(float x) { return __builtin_log2f(x) * 0.6931471806f; }
HIPD float __log2f(float x) { return __builtin_log2f(x); }
HIPD float __log10f(float x) { return __builtin_log2f(x) * 0.3010299957f; }
HIPD float __sinf(float x) { return __builtin_sinf(x); }
HIPD float __cosf(float x) { return __builtin_cosf(x); }
HIPD float __powf(float x, float y) { return powf(x, y); }
HIPD float __fdividef(float a, float b) { return a * __builtin_amdgcn_rcpf(b); }
HIPD float fdividef(float a, float b) { return a / b; }
HIPD float __frcp_rn(float x) { return 1.0f / x; }
HIPD float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
HIPD float __frsqrt_rn(float x) { return __builtin_amdgcn_rsqf(x); }
HIPD float __fadd_rn(float a, float b) { return a + b; }
HIPD float __fsub_rn(float a, float b) { return a - b; }
HIPD float __fmul_rn(float a, float b) { return a * b; }
HIPD float __fdiv_rn(float a, float b) { return a / b; }
HIPD float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HIPD float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
HIPD bool isnan(float x) { return x != x; }
HIPD bool isnan(double x) { return x != x; }
HIPD bool isinf(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
HIPD bool isinf(double x) { return __builtin_fabs(x) == __builtin_inf(); }
HIPD bool isfinite(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
HIPD bool isfinite(double x) { return __builtin_fabs(x) < __builtin_inf(); }
HIPD int abs(int x) { return x < 0 ? -x : x; }
HIPD long abs(long x) { return x < 0 ? -x : x; }
HIPD float abs(float x) { return __builtin_fabsf(x); }
HIPD double abs(double x) { return __builtin_fabs(x); }
template <class A, class B>
__host__ __device__ constexpr auto max(A a, B b) -> decltype(true ? a : b) { return a < b ? b : a; }
template <class A, class B>
__host__ __device__ constexpr auto min(A a, B b) -> decltype(true ? a : b) { return b < a ? b : a; }
HIPD float max(float a, float b) { return __builtin_fmaxf(a, b); }
HIPD float min(float a, float b) { return __builtin_fminf(a, b); }
HIPD double max(double a, double b) { return __builtin_fmax(a, b); }
HIPD double min(double a, double b) { return __builtin_fmin(a, b); }

// ---- bits and conversions ----

template <class To, class From> HIPD To hipd_bits(From value) { return __builtin_bit_cast(To, value); }
HIPD int __float_as_int(float x) { return hipd_bits<int>(x); }
HIPD unsigned __float_as_uint(float x) { return hipd_bits<unsigned>(x); }
HIPD float __int_as_float(int x) { return hipd_bits<float>(x); }
HIPD float __uint_as_float(unsigned x) { return hipd_bits<float>(x); }
HIPD long long __double_as_longlong(double x) { return hipd_bits<long long>(x); }
HIPD double __longlong_as_double(long long x) { return hipd_bits<double>(x); }
HIPD int __float2int_rn(float x) { return int(__builtin_rintf(x)); }
HIPD int __float2int_rz(float x) { return int(x); }
HIPD int __float2int_rd(float x) { return int(__builtin_floorf(x)); }
HIPD int __float2int_ru(float x) { return int(__builtin_ceilf(x)); }
HIPD float __int2float_rn(int x) { return float(x); }
HIPD float __uint2float_rn(unsigned x) { return float(x); }
HIPD int __popc(unsigned x) { return __builtin_popcount(x); }
HIPD int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HIPD int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
HIPD int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
HIPD int __ffs(int x) { return x ? __builtin_ctz(unsigned(x)) + 1 : 0; }
HIPD int __ffsll(long long x) { return x ? __builtin_ctzll((unsigned long long)(x)) + 1 : 0; }
HIPD unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
HIPD int __mul24(int a, int b) { return a * b; }
HIPD unsigned __umul24(unsigned a, unsigned b) { return a * b; }
HIPD int __mulhi(int a, int b) { return int((long long)(a) * b >> 32); }
HIPD unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)(a) * b >> 32); }
template <class T> HIPD T __ldg(const T* place) { return *place; }

namespace std {
using ::max; using ::min; using ::abs; using ::fabs; using ::sqrt; using ::exp; using ::log; using ::pow; using ::tanh;
using ::isnan; using ::isinf; using ::isfinite; using ::fmax; using ::fmin; using ::floor; using ::ceil; using ::size_t;
}  // namespace std

// ---- half and bfloat16 ----

#define HIPD_NARROW(T, T2, narrow)                                                        \
  struct T {                                                                              \
    narrow value;                                                                         \
    T() = default;                                                                        \
    __device__ T(float x) : value(narrow(x)) {}                                           \
    __device__ T(double x) : value(narrow(float(x))) {}                                   \
    __device__ T(int x) : value(narrow(float(x))) {}                                      \
    __device__ T(unsigned x) : value(narrow(float(x))) {}                                 \
    __device__ operator float() const { return float(value); }                            \
  };                                                                                      \
  struct alignas(4) T2 {                                                                  \
    T x, y;                                                                               \
    T2() = default;                                                                       \
    __device__ T2(T x, T y) : x(x), y(y) {}                                               \
  };                                                                                      \
  HIPD_NARROW_OPERATOR(T, T2, +) HIPD_NARROW_OPERATOR(T, T2, -)                           \
  HIPD_NARROW_OPERATOR(T, T2, *) HIPD_NARROW_OPERATOR(T, T2, /)                           \
  HIPD_NARROW_COMPARISON(T, <) HIPD_NARROW_COMPARISON(T, >) HIPD_NARROW_COMPARISON(T, <=) \
  HIPD_NARROW_COMPARISON(T, >=) HIPD_NARROW_COMPARISON(T, ==) HIPD_NARROW_COMPARISON(T, !=) \
  HIPD T operator-(T a) { return T(-float(a)); }                                          \
  HIPD T __hadd(T a, T b) { return a + b; }                                               \
  HIPD T __hsub(T a, T b) { return a - b; }                                               \
  HIPD T __hmul(T a, T b) { return a * b; }                                               \
  HIPD T __hdiv(T a, T b) { return a / b; }                                               \
  HIPD T __hneg(T a) { return -a; }                                                       \
  HIPD T __hfma(T a, T b, T c) { return T(__builtin_fmaf(a, b, c)); }                     \
  HIPD T __hmax(T a, T b) { return T(__builtin_fmaxf(a, b)); }                            \
  HIPD T __hmin(T a, T b) { return T(__builtin_fminf(a, b)); }                            \
  HIPD T __habs(T a) { return T(__builtin_fabsf(a)); }                                    \
  HIPD bool __hlt(T a, T b) { return a < b; }                                             \
  HIPD bool __hgt(T a, T b) { return a > b; }                                             \
  HIPD bool __hisnan(T a) { return isnan(float(a)); }                                     \
  HIPD T hexp(T a) { return T(__builtin_expf(a)); }                                       \
  HIPD T hlog(T a) { return T(__builtin_logf(a)); }                                       \
  HIPD T hsqrt(T a) { return T(__builtin_sqrtf(a)); }                                     \
  HIPD T hrsqrt(T a) { return T(rsqrtf(a)); }                                             \
  HIPD T hrcp(T a) { return T(1.0f / float(a)); }                                         \
  HIPD T2 __hadd2(T2 a, T2 b) { return a + b; }                                           \
  HIPD T2 __hsub2(T2 a, T2 b) { return a - b; }                                           \
  HIPD T2 __hmul2(T2 a, T2 b) { return a * b; }                                           \
  HIPD T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
#define HIPD_NARROW_OPERATOR(T, T2, op)                                                   \
  HIPD T operator op(T a, T b) { return T(float(a) op float(b)); }                        \
  HIPD T& operator op##=(T& a, T b) { return a = a op b; }                                \
  HIPD T2 operator op(T2 a, T2 b) { return {a.x op b.x, a.y op b.y}; }
#define HIPD_NARROW_COMPARISON(T, op) \
  HIPD bool operator op(T a, T b) { return float(a) op float(b); }
HIPD_NARROW(__half, __half2, _Float16)
HIPD_NARROW(__hip_bfloat16, __hip_bfloat162, __bf16)
using half = __half;
using half2 = __half2;
using hip_bfloat16 = __hip_bfloat16;
HIPD __half __float2half(float x) { return __half(x); }
HIPD __half __float2half_rn(float x) { return __half(x); }
HIPD float __half2float(__half x) { return x; }
HIPD __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
HIPD __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
HIPD __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
HIPD float2 __half22float2(__half2 x) { return {x.x, x.y}; }
HIPD float __low2float(__half2 x) { return x.x; }
HIPD float __high2float(__half2 x) { return x.y; }
HIPD __half __low2half(__half2 x) { return x.x; }
HIPD __half __high2half(__half2 x) { return x.y; }
HIPD __half2 __halves2half2(__half x, __half y) { return {x, y}; }
HIPD __half2 __half2half2(__half x) { return {x, x}; }
HIPD __half2 make_half2(__half x, __half y) { return {x, y}; }
HIPD __hip_bfloat16 __float2bfloat16(float x) { return __hip_bfloat16(x); }
HIPD float __bfloat162float(__hip_bfloat16 x) { return x; }
namespace c10 { using Half = __half; using BFloat16 = __hip_bfloat16; }
namespace at { using c10::Half; using c10::BFloat16; }

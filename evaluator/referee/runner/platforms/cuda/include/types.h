// The types and functions of CUDA C++ that need no threads: vectors, half and bfloat16, mathematics, bits.
#pragma once
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <math.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __constant__ static
#define __managed__
#define __align__(n) alignas(n)
#define __restrict__ __restrict
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_PI_F 3.141592654f

#define CUH_VECTOR(T, name, align1, align2, align4)                                                       \
  struct alignas(align1) name##1 { T x; };                                                                \
  struct alignas(align2) name##2 { T x, y; };                                                             \
  struct name##3 { T x, y, z; };                                                                          \
  struct alignas(align4) name##4 { T x, y, z, w; };                                                       \
  inline name##1 make_##name##1(T x) { return {x}; }                                                      \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                              \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                      \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUH_VECTOR(signed char, char, 1, 2, 4)
CUH_VECTOR(unsigned char, uchar, 1, 2, 4)
CUH_VECTOR(short, short, 2, 4, 8)
CUH_VECTOR(unsigned short, ushort, 2, 4, 8)
CUH_VECTOR(int, int, 4, 8, 16)
CUH_VECTOR(unsigned, uint, 4, 8, 16)
CUH_VECTOR(long, long, 8, 16, 16)
CUH_VECTOR(unsigned long, ulong, 8, 16, 16)
CUH_VECTOR(long long, longlong, 8, 16, 16)
CUH_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
CUH_VECTOR(float, float, 4, 8, 16)
CUH_VECTOR(double, double, 8, 16, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 each) : x(each.x), y(each.y), z(each.z) {}
  operator uint3() const { return {x, y, z}; }
};

// ---- half and bfloat16 ----

namespace cuh {
inline float float_of_bits(uint32_t bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline uint32_t bits_of_float(float value) { uint32_t bits; std::memcpy(&bits, &value, 4); return bits; }
inline uint16_t bfloat16_bits(float value) {
  uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
}  // namespace cuh

struct __half {
  uint16_t bits;
  __half() = default;
  __half(float value) { const _Float16 narrow = static_cast<_Float16>(value); std::memcpy(&bits, &narrow, 2); }
  __half(double value) { const _Float16 narrow = static_cast<_Float16>(value); std::memcpy(&bits, &narrow, 2); }
  __half(int value) : __half(static_cast<double>(value)) {}
  __half(unsigned value) : __half(static_cast<double>(value)) {}
  __half(long value) : __half(static_cast<double>(value)) {}
  operator float() const { _Float16 narrow; std::memcpy(&narrow, &bits, 2); return static_cast<float>(narrow); }
};
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(cuh::bfloat16_bits(value)) {}
  __nv_bfloat16(double value) : bits(cuh::bfloat16_bits(static_cast<float>(value))) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<float>(value)) {}
  operator float() const { return cuh::float_of_bits(uint32_t(bits) << 16); }
};
using half = __half;
using nv_bfloat16 = __nv_bfloat16;
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;

#define CUH_NARROW_OPERATOR(T, op)                                                        \
  inline T operator op(T a, T b) { return T(float(a) op float(b)); }                      \
  inline T& operator op##=(T& a, T b) { return a = T(float(a) op float(b)); }
#define CUH_NARROW_COMPARISON(T, op) \
  inline bool operator op(T a, T b) { return float(a) op float(b); }
#define CUH_NARROW_UNARY(T, name, expression) \
  inline T name(T value) { const float x = value; return T(float(expression)); }
#define CUH_NARROW(T, T2)                                                                                          \
  CUH_NARROW_OPERATOR(T, +) CUH_NARROW_OPERATOR(T, -) CUH_NARROW_OPERATOR(T, *) CUH_NARROW_OPERATOR(T, /)          \
  CUH_NARROW_COMPARISON(T, <) CUH_NARROW_COMPARISON(T, >) CUH_NARROW_COMPARISON(T, <=)                             \
  CUH_NARROW_COMPARISON(T, >=) CUH_NARROW_COMPARISON(T, ==) CUH_NARROW_COMPARISON(T, !=)                           \
  inline T operator-(T a) { return T(-float(a)); }                                                                 \
  inline T __hadd(T a, T b) { return a + b; }                                                                      \
  inline T __hsub(T a, T b) { return a - b; }                                                                      \
  inline T __hmul(T a, T b) { return a * b; }                                                                      \
  inline T __hdiv(T a, T b) { return a / b; }                                                                      \
  inline T __hneg(T a) { return -a; }                                                                              \
  inline T __hfma(T a, T b, T c) { return T(std::fma(float(a), float(b), float(c))); }                             \
  inline T __hmax(T a, T b) { return T(std::fmax(float(a), float(b))); }                                           \
  inline T __hmin(T a, T b) { return T(std::fmin(float(a), float(b))); }                                           \
  inline T __habs(T a) { return T(std::fabs(float(a))); }                                                          \
  inline bool __hlt(T a, T b) { return a < b; }                                                                    \
  inline bool __hgt(T a, T b) { return a > b; }                                                                    \
  inline bool __hle(T a, T b) { return a <= b; }                                                                   \
  inline bool __hge(T a, T b) { return a >= b; }                                                                   \
  inline bool __heq(T a, T b) { return a == b; }                                                                   \
  inline bool __hne(T a, T b) { return a != b; }                                                                   \
  inline bool __hisnan(T a) { return std::isnan(float(a)); }                                                       \
  CUH_NARROW_UNARY(T, hexp, std::exp(x)) CUH_NARROW_UNARY(T, hlog, std::log(x))                                    \
  CUH_NARROW_UNARY(T, hsqrt, std::sqrt(x)) CUH_NARROW_UNARY(T, hrsqrt, 1.0f / std::sqrt(x))                        \
  CUH_NARROW_UNARY(T, hrcp, 1.0f / x) CUH_NARROW_UNARY(T, htanh, std::tanh(x))                                     \
  inline T2 operator+(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }                                               \
  inline T2 operator-(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }                                               \
  inline T2 operator*(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }                                               \
  inline T2 operator/(T2 a, T2 b) { return {a.x / b.x, a.y / b.y}; }                                               \
  inline T2 __hadd2(T2 a, T2 b) { return a + b; }                                                                  \
  inline T2 __hsub2(T2 a, T2 b) { return a - b; }                                                                  \
  inline T2 __hmul2(T2 a, T2 b) { return a * b; }                                                                  \
  inline T2 __h2div(T2 a, T2 b) { return a / b; }                                                                  \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }                   \
  inline T2 __hmax2(T2 a, T2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                                   \
  inline T2 __hmin2(T2 a, T2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
CUH_NARROW(__half, __half2)
CUH_NARROW(__nv_bfloat16, __nv_bfloat162)

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __half2float(__half x) { return x; }
inline __half __int2half_rn(int x) { return __half(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
inline float __low2float(__half2 x) { return x.x; }
inline float __high2float(__half2 x) { return x.y; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { __half x; x.bits = bits; return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }

// ---- mathematics: the fast forms of CUDA are less exact on a GPU than here ----

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
#define CUH_BOTH(name, T)                                                                  \
  template <class A, class B>                                                              \
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)                           \
  constexpr std::common_type_t<A, B> name(A a, B b) {                                      \
    using C = std::common_type_t<A, B>;                                                    \
    if constexpr (std::is_floating_point_v<C>) return T(C(a), C(b));                       \
    else return #name[1] == 'a' ? (C(a) < C(b) ? C(b) : C(a)) : (C(b) < C(a) ? C(b) : C(a)); \
  }
CUH_BOTH(max, std::fmax)
CUH_BOTH(min, std::fmin)
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / std::cbrt(x); }
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678118654752f); }
inline float erfcxf(float x) { return std::exp(x * x) * std::erfc(x); }
inline float __saturatef(float x) { return x >= 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float saturate(float x) { return __saturatef(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline void __sincosf(float x, float* s, float* c) { *s = std::sin(x); *c = std::cos(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline int __float2int_rd(float x) { return int(std::floor(x)); }
inline int __float2int_ru(float x) { return int(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return unsigned(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline int __float_as_int(float x) { int bits; std::memcpy(&bits, &x, 4); return bits; }
inline unsigned __float_as_uint(float x) { return cuh::bits_of_float(x); }
inline float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline float __uint_as_float(unsigned bits) { return cuh::float_of_bits(bits); }
inline long long __double_as_longlong(double x) { long long bits; std::memcpy(&bits, &x, 8); return bits; }
inline double __longlong_as_double(long long bits) { double x; std::memcpy(&x, &bits, 8); return x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline int __mul24(int a, int b) { return a * b; }
inline int __mulhi(int a, int b) { return int((static_cast<long long>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((static_cast<unsigned long long>(a) * b) >> 32); }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += int(static_cast<signed char>(a >> 8 * i)) * int(static_cast<signed char>(b >> 8 * i));
  return c;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return unsigned((both << (shift & 31)) >> 32);
}
template <class T> T __ldg(const T* place) { return *place; }
template <class T> T __ldcg(const T* place) { return *place; }
template <class T> T __ldca(const T* place) { return *place; }
template <class T> T __ldcs(const T* place) { return *place; }
template <class T> void __stcs(T* place, T value) { *place = value; }
template <class T> void __stcg(T* place, T value) { *place = value; }
template <class T> void __stwt(T* place, T value) { *place = value; }

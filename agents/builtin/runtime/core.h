// Vectors for generated kernels, by the compiler's vector extensions: one register type for any element and width.
// KW_VEC_BYTES is the width that the kernels were generated for; a machine with narrower vectors runs them in halves.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <omp.h>

#define KW_INLINE inline __attribute__((always_inline))
#define KW_EACH _Pragma("GCC unroll 16") for (int i = 0; i < N; i++)
#define C10_LIKELY(x) __builtin_expect(!!(x), 1)
#define C10_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define __at_align__ alignas(KW_VEC_BYTES)
#define TORCH_CHECK(ok, text) \
  do { if (C10_UNLIKELY(!(ok))) { std::fprintf(stderr, "kernel: %s\n", text); std::abort(); } } while (0)
// Scalar square roots of a negative number must not call the library to set errno.
#define KW_FLOATING std::is_floating_point_v<T>

namespace at {
struct BFloat16 {
  uint16_t x;
  BFloat16() = default;
  KW_INLINE BFloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    x = value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  }
  KW_INLINE operator float() const {
    uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};
struct Half {
  _Float16 x;
  Half() = default;
  KW_INLINE Half(float value) : x(static_cast<_Float16>(value)) {}
  KW_INLINE operator float() const { return static_cast<float>(x); }
};
}  // namespace at

namespace kw {
template <int Bytes> struct IntOf;
template <> struct IntOf<1> { using type = int8_t; };
template <> struct IntOf<2> { using type = int16_t; };
template <> struct IntOf<4> { using type = int32_t; };
template <> struct IntOf<8> { using type = int64_t; };
template <class T> using Int = typename IntOf<sizeof(T)>::type;
template <class T> struct RawOf { using type = T; };  // what the lanes of a register are made of
template <> struct RawOf<bool> { using type = uint8_t; };
template <> struct RawOf<at::BFloat16> { using type = uint16_t; };
template <> struct RawOf<at::Half> { using type = uint16_t; };
template <class T> using Raw = typename RawOf<T>::type;
template <class T, int Lanes> struct RegisterOf { typedef T type __attribute__((vector_size(sizeof(T) * Lanes))); };
template <class T, int Lanes> using Register = typename RegisterOf<T, Lanes>::type;
template <class To, class From> KW_INLINE To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
// Lane by lane conversion in steps that processors have: integers change their width by two at a time, and become
// floats as 32 bits at least.
template <class To, int Lanes, class P> KW_INLINE Register<To, Lanes> converted(P part) {
  using From = std::remove_cv_t<std::remove_reference_t<decltype(part[0])>>;
  if constexpr (std::is_same_v<To, From>) return part;
#if defined(__AVX512F__)
  else if constexpr (std::is_same_v<To, int32_t> && Lanes == 16 && std::is_same_v<From, int8_t>)
    return __builtin_ia32_pmovsxbd512_mask(bits<Register<char, 16>>(part), Register<int, 16>{}, -1);
  else if constexpr (std::is_same_v<To, int32_t> && Lanes == 16 && std::is_same_v<From, uint8_t>)
    return __builtin_ia32_pmovzxbd512_mask(bits<Register<char, 16>>(part), Register<int, 16>{}, -1);
#endif
  else if constexpr (std::is_integral_v<From> && std::is_floating_point_v<To> && sizeof(From) < 4)
    return converted<To, Lanes>(converted<int32_t, Lanes>(part));
  else if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && sizeof(To) > 2 * sizeof(From)) {
    using Twice = Int<std::array<From, 2>>;
    using Step = std::conditional_t<std::is_signed_v<From>, Twice, std::make_unsigned_t<Twice>>;
    return converted<To, Lanes>(__builtin_convertvector(part, Register<Step, Lanes>));
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && sizeof(From) > 2 * sizeof(To))
    return converted<To, Lanes>(__builtin_convertvector(part, Register<typename IntOf<sizeof(From) / 2>::type, Lanes>));
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4)
    return converted<To, Lanes>(__builtin_convertvector(part, Register<int32_t, Lanes>));
  else return __builtin_convertvector(part, Register<To, Lanes>);
}
template <class R, class T> KW_INLINE R lane_numbers() {
  R r;
  _Pragma("GCC unroll 64") for (unsigned i = 0; i < sizeof(R) / sizeof(T); i++) r[i] = T(i);
  return r;
}
}  // namespace kw

namespace at::vec {
template <class T, int N> struct VecMask;

// N registers of elements T.
template <class T, int N = 1> struct Vec {
  using value_type = T;
  using E = kw::Raw<T>;
  using I = kw::Int<T>;
  static constexpr int W = KW_VEC_BYTES / sizeof(T);
  using R = kw::Register<E, W>;
  R r[N];
  static constexpr int size() { return W * N; }
  KW_INLINE Vec() { KW_EACH r[i] = R{}; }
  KW_INLINE Vec(T value) { E e = kw::bits<E>(value); KW_EACH r[i] = e - R{}; }
  template <class U, std::enable_if_t<std::is_arithmetic_v<U> && !std::is_same_v<U, T>, int> = 0>
  KW_INLINE Vec(U value) : Vec(static_cast<T>(value)) {}
  KW_INLINE Vec(const VecMask<T, N>& mask);
  KW_INLINE Vec<T, 1> operator[](int i) const { Vec<T, 1> v; v.r[0] = r[i]; return v; }
  template <class U> KW_INLINE static Vec loadu(const U* from) {
    Vec v;
    KW_EACH __builtin_memcpy(&v.r[i], reinterpret_cast<const T*>(from) + i * W, sizeof(R));
    return v;
  }
  template <class U> KW_INLINE static Vec loadu(const U* from, int64_t count) {
    if (__builtin_constant_p(count >= size()) && count >= size()) return loadu(from);
    Vec v;
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
    if constexpr (sizeof(T) == 4) {
      KW_EACH v.r[i] = kw::bits<R>(__builtin_ia32_loadups512_mask(
          reinterpret_cast<const float*>(from) + i * W, kw::Register<float, 16>{}, kw_mask(count - i * W)));
      return v;
    }
#endif
#if defined(__AVX512BW__) && KW_VEC_BYTES == 64
    if constexpr (sizeof(T) == 1 && N == 1) {
      uint64_t some = count >= 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1;
      v.r[0] = kw::bits<R>(__builtin_ia32_loaddquqi512_mask(reinterpret_cast<const char*>(from), kw::Register<char, 64>{}, some));
      return v;
    }
    if constexpr (sizeof(T) == 2 && N == 1) {
      uint32_t some = count >= 32 ? ~uint32_t(0) : (uint32_t(1) << count) - 1;
      v.r[0] = kw::bits<R>(__builtin_ia32_loaddquhi512_mask(reinterpret_cast<const short*>(from), kw::Register<short, 32>{}, some));
      return v;
    }
#endif
    std::memcpy(&v, from, sizeof(T) * (count < size() ? count : size()));
    return v;
  }
  template <class U> KW_INLINE void store(U* to) const { KW_EACH __builtin_memcpy(reinterpret_cast<T*>(to) + i * W, &r[i], sizeof(R)); }
  template <class U> KW_INLINE void store(U* to, int64_t count) const {
    if (__builtin_constant_p(count >= size()) && count >= size()) return store(to);
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
    if constexpr (sizeof(T) == 4) {
      KW_EACH __builtin_ia32_storeups512_mask(reinterpret_cast<float*>(to) + i * W, kw::bits<kw::Register<float, 16>>(r[i]), kw_mask(count - i * W));
      return;
    }
#endif
    std::memcpy(to, this, sizeof(T) * (count < size() ? count : size()));
  }
  KW_INLINE static uint16_t kw_mask(int64_t count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1; }
  template <class S> KW_INLINE static Vec arange(T base, S step) {
    Vec v;
    KW_EACH v.r[i] = base + (kw::lane_numbers<R, E>() + E(i * W)) * E(step);
    return v;
  }
  KW_INLINE static Vec blendv(const Vec& a, const Vec& b, const VecMask<T, N>& mask);
  KW_INLINE static Vec set(const Vec& a, const Vec& b, int64_t count = size());
  template <class F> KW_INLINE Vec each(F f) const { Vec v; KW_EACH v.r[i] = f(r[i]); return v; }
  template <class F> KW_INLINE Vec lanes(F f) const { Vec v; KW_EACH for (int k = 0; k < W; k++) v.r[i][k] = f(r[i][k]); return v; }
  template <class F> KW_INLINE Vec lanes(F f, const Vec& b) const { Vec v; KW_EACH for (int k = 0; k < W; k++) v.r[i][k] = f(r[i][k], b.r[i][k]); return v; }
  KW_INLINE Vec neg() const { return each([](R x) { return -x; }); }
  KW_INLINE Vec abs() const {
    if constexpr (KW_FLOATING) return each([](R x) { return kw::bits<R>(kw::bits<kw::Register<I, W>>(x) & std::numeric_limits<I>::max()); });
    else return each([](R x) { return x < 0 ? -x : x; });
  }
  KW_INLINE Vec copysign(const Vec& s) const {
    using B = kw::Register<I, W>;
    constexpr I top = std::numeric_limits<I>::min();
    Vec v;
    KW_EACH v.r[i] = kw::bits<R>((kw::bits<B>(r[i]) & ~top) | (kw::bits<B>(s.r[i]) & top));
    return v;
  }
  KW_INLINE Vec reciprocal() const { return Vec(1) / *this; }
  KW_INLINE VecMask<T, N> isnan() const;
  Vec sqrt() const; Vec rsqrt() const; Vec exp() const; Vec exp_u20() const; Vec fexp_u20() const; Vec log() const; Vec log1p() const;
  Vec erf() const; Vec tanh() const; Vec floor() const; Vec ceil() const; Vec trunc() const; Vec round() const; Vec exp2() const;
  Vec expm1() const; Vec erfc() const; Vec log2() const; Vec log10() const; Vec sin() const; Vec cos() const; Vec tan() const;
  Vec sinh() const; Vec cosh() const; Vec asin() const; Vec acos() const; Vec atan() const; Vec asinh() const; Vec acosh() const;
  Vec atanh() const; Vec lgamma() const; Vec pow(const Vec& b) const; Vec atan2(const Vec& b) const; Vec fmod(const Vec& b) const;
  Vec hypot(const Vec& b) const;
};
template <class T> using Vectorized = Vec<T, 1>;
template <class T, int N> using VectorizedN = Vec<T, N>;

// Lanes that are all ones or all zeros, as wide as T.
template <class T, int N> struct VecMask {
  using I = kw::Int<T>;
  static constexpr int W = KW_VEC_BYTES / sizeof(T);
  using R = kw::Register<I, W>;
  R m[N];
  static constexpr int size() { return W * N; }
  KW_INLINE VecMask() { KW_EACH m[i] = R{}; }
  KW_INLINE VecMask(const Vec<T, N>& v) { KW_EACH m[i] = kw::bits<R>(v.r[i]); }
  template <class U, std::enable_if_t<std::is_arithmetic_v<U>, int> = 0> KW_INLINE static VecMask from(U value) {
    VecMask v;
    KW_EACH v.m[i] = R{} - I(value ? 1 : 0);
    return v;
  }
  template <class U> KW_INLINE static VecMask from(const U* p, int64_t count = size()) {
    VecMask v;
    using B = kw::Register<kw::Raw<U>, W>;
    KW_EACH {
      B b{};
      int64_t left = count - i * W;
      if (__builtin_constant_p(left >= W) && left >= W) __builtin_memcpy(&b, p + i * W, sizeof b);
      else if (left > 0) std::memcpy(&b, p + i * W, sizeof(U) * (left < W ? left : W));
      v.m[i] = kw::converted<I, W>(b) != 0;
    }
    return v;
  }
  template <class U, int M> KW_INLINE static VecMask from(const Vec<U, M>& v) { return VecMask<U, M>(v != Vec<U, M>(0)).template cast<T, N>(); }
  template <class U, int M> KW_INLINE VecMask<U, M> cast() const {
    VecMask<U, M> out;
    using To = kw::Int<U>;
    constexpr int V = VecMask<U, M>::W, step = W < V ? W : V, lanes = size() < VecMask<U, M>::size() ? size() : VecMask<U, M>::size();
    if constexpr (std::is_same_v<I, To>) {
      std::memcpy(&out, this, sizeof(I) * lanes);
    } else {
      _Pragma("GCC unroll 16") for (int k = 0; k < lanes; k += step) {
        kw::Register<I, step> part;
        __builtin_memcpy(&part, reinterpret_cast<const I*>(this) + k, sizeof part);
        kw::Register<To, step> wide = kw::converted<To, step>(part);
        __builtin_memcpy(reinterpret_cast<To*>(&out) + k, &wide, sizeof wide);
      }
    }
    return out;
  }
  template <class U, int M> KW_INLINE Vec<U, M> to() const { return Vec<U, M>::blendv(Vec<U, M>(0), Vec<U, M>(1), cast<U, M>()); }
  // Lanes outside of the mask are 0, and nothing is read for them: they may lie where there is no memory.
  template <class U, int M = 1> KW_INLINE Vec<U, M> loadu(const U* p) const {
    Vec<U, M> v;
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
    if constexpr (sizeof(U) == 4 && sizeof(T) == 4 && M == N) {
      uint64_t some = lane_bits();
      KW_EACH v.r[i] = kw::bits<typename Vec<U, M>::R>(__builtin_ia32_loadups512_mask(
          reinterpret_cast<const float*>(p) + i * W, kw::Register<float, 16>{}, uint16_t(some >> (i * W))));
      return v;
    }
#endif
    constexpr int lanes = size() < Vec<U, M>::size() ? size() : Vec<U, M>::size();
    for (int k = 0; k < lanes; k++)
      if (m[k / W][k % W]) std::memcpy(reinterpret_cast<U*>(&v) + k, p + k, sizeof(U));
    return v;
  }
  KW_INLINE void store(bool* p, int64_t count = size()) const {
    using B = kw::Register<uint8_t, W>;
    KW_EACH {
      B b = kw::converted<uint8_t, W>(m[i] & 1);
      int64_t left = count - i * W;
      if (__builtin_constant_p(left >= W) && left >= W) __builtin_memcpy(p + i * W, &b, sizeof b);
      else if (left > 0) std::memcpy(p + i * W, &b, left < W ? left : W);
    }
  }
  // One bit a lane.
  KW_INLINE uint64_t lane_bits() const {
    uint64_t all = 0;
    KW_EACH {
      uint64_t some = 0;
#if defined(__AVX512DQ__) && KW_VEC_BYTES == 64
      if constexpr (sizeof(T) == 4) some = uint16_t(__builtin_ia32_cvtd2mask512(m[i]));
      else if constexpr (sizeof(T) == 8) some = uint8_t(__builtin_ia32_cvtq2mask512(kw::bits<kw::Register<long long, 8>>(m[i])));
      else
#endif
        for (int k = 0; k < W; k++) some |= uint64_t(m[i][k] & 1) << k;
      all |= some << (i * W % 64);
    }
    return all;
  }
  static constexpr uint64_t every_lane = size() >= 64 ? ~uint64_t(0) : (uint64_t(1) << (size() % 64)) - 1;
  KW_INLINE bool is_masked(int k) const { return (lane_bits() >> k) & 1; }
  KW_INLINE bool all_zero() const { return lane_bits() == 0; }
  KW_INLINE bool all_masked() const { return lane_bits() == every_lane; }
  KW_INLINE static VecMask blendv(const VecMask& a, const VecMask& b, const VecMask& mask) { VecMask v; KW_EACH v.m[i] = (a.m[i] & ~mask.m[i]) | (b.m[i] & mask.m[i]); return v; }
  KW_INLINE static VecMask set(const VecMask& a, const VecMask& b, int64_t count = size()) { return blendv(a, b, first(count)); }
  KW_INLINE static VecMask first(int64_t count) { VecMask v; KW_EACH v.m[i] = kw::lane_numbers<R, I>() < (R{} + I(count - i * W < 0 ? 0 : count - i * W > W ? W : count - i * W)); return v; }
};
template <class T, int N> KW_INLINE Vec<T, N>::Vec(const VecMask<T, N>& mask) { KW_EACH r[i] = kw::bits<R>(mask.m[i]); }
template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::blendv(const Vec& a, const Vec& b, const VecMask<T, N>& mask) {
  Vec v;
  KW_EACH v.r[i] = mask.m[i] ? b.r[i] : a.r[i];
  return v;
}
template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::set(const Vec& a, const Vec& b, int64_t count) { return blendv(a, b, VecMask<T, N>::first(count)); }
template <class T, int N> KW_INLINE VecMask<T, N> Vec<T, N>::isnan() const { return *this != *this; }

#define KW_ARITHMETIC(op) template <class T, int N> KW_INLINE Vec<T, N> operator op(const Vec<T, N>& a, const Vec<T, N>& b) { Vec<T, N> v; KW_EACH v.r[i] = a.r[i] op b.r[i]; return v; }
KW_ARITHMETIC(+) KW_ARITHMETIC(-) KW_ARITHMETIC(*) KW_ARITHMETIC(/)
#define KW_INTEGER(op) template <class T, int N, std::enable_if_t<std::is_integral_v<T>, int> = 0> KW_INLINE Vec<T, N> operator op(const Vec<T, N>& a, const Vec<T, N>& b) { Vec<T, N> v; KW_EACH v.r[i] = a.r[i] op b.r[i]; return v; }
KW_INTEGER(&) KW_INTEGER(|) KW_INTEGER(^) KW_INTEGER(<<) KW_INTEGER(>>)
template <class T, int N> KW_INLINE Vec<T, N> operator~(const Vec<T, N>& a) { return a.each([](auto x) { return ~x; }); }
#define KW_COMPARE(op) template <class T, int N> KW_INLINE VecMask<T, N> operator op(const Vec<T, N>& a, const Vec<T, N>& b) { VecMask<T, N> v; KW_EACH v.m[i] = kw::bits<typename VecMask<T, N>::R>(a.r[i] op b.r[i]); return v; }
KW_COMPARE(==) KW_COMPARE(!=) KW_COMPARE(<) KW_COMPARE(>) KW_COMPARE(<=) KW_COMPARE(>=)
#define KW_LOGIC(op, expression) template <class T, int N, class U, int M> KW_INLINE VecMask<T, N> operator op(const VecMask<T, N>& a, const VecMask<U, M>& c) { VecMask<T, N> b = c.template cast<T, N>(), v; KW_EACH v.m[i] = expression; return v; }
KW_LOGIC(&, a.m[i] & b.m[i]) KW_LOGIC(|, a.m[i] | b.m[i]) KW_LOGIC(^, a.m[i] ^ b.m[i]) KW_LOGIC(!=, a.m[i] ^ b.m[i]) KW_LOGIC(==, ~(a.m[i] ^ b.m[i]))
KW_LOGIC(>, a.m[i] & ~b.m[i]) KW_LOGIC(<, ~a.m[i] & b.m[i])
template <class T, int N> KW_INLINE VecMask<T, N> operator~(const VecMask<T, N>& a) { VecMask<T, N> v; KW_EACH v.m[i] = ~a.m[i]; return v; }
}  // namespace at::vec

namespace kw {
// The few instructions that the vector extensions cannot spell. max and min give b where either is NaN.
using F = Register<float, KW_VEC_BYTES / 4>;
using S = Register<int32_t, KW_VEC_BYTES / 4>;
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
KW_INLINE F fma(F a, F b, F c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); }
KW_INLINE F max(F a, F b) { return __builtin_ia32_maxps512_mask(a, b, F{}, -1, 4); }
KW_INLINE F min(F a, F b) { return __builtin_ia32_minps512_mask(a, b, F{}, -1, 4); }
KW_INLINE F sqrt(F a) { return __builtin_ia32_sqrtps512_mask(a, F{}, -1, 4); }
KW_INLINE F scale(F a, F n) { return __builtin_ia32_scalefps512_mask(a, n, F{}, -1, 4); }
template <int mode> KW_INLINE F rounded(F a) { return __builtin_ia32_rndscaleps_mask(a, mode, F{}, -1, 4); }
KW_INLINE void stream(float* to, F a) { __builtin_ia32_movntps512(to, a); }
#else
#if defined(__AVX2__) && defined(__FMA__) && KW_VEC_BYTES == 32
KW_INLINE F fma(F a, F b, F c) { return __builtin_ia32_vfmaddps256(a, b, c); }
KW_INLINE F max(F a, F b) { return __builtin_ia32_maxps256(a, b); }
KW_INLINE F min(F a, F b) { return __builtin_ia32_minps256(a, b); }
KW_INLINE F sqrt(F a) { return __builtin_ia32_sqrtps256(a); }
template <int mode> KW_INLINE F rounded(F a) { return __builtin_ia32_roundps256(a, mode); }
KW_INLINE void stream(float* to, F a) { __builtin_ia32_movntps256(to, a); }
#else
template <class Fn> KW_INLINE F lanewise(F a, Fn f) { for (unsigned i = 0; i < KW_VEC_BYTES / 4; i++) a[i] = f(a[i]); return a; }
KW_INLINE F fma(F a, F b, F c) { for (unsigned i = 0; i < KW_VEC_BYTES / 4; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]); return a; }
KW_INLINE F max(F a, F b) { return a > b ? a : b; }
KW_INLINE F min(F a, F b) { return a < b ? a : b; }
KW_INLINE F sqrt(F a) { return lanewise(a, [](float x) { return __builtin_sqrtf(x); }); }
template <int mode> KW_INLINE F rounded(F a) { return lanewise(a, [](float x) { return mode == 8 ? __builtin_rintf(x) : mode == 9 ? __builtin_floorf(x) : mode == 10 ? __builtin_ceilf(x) : __builtin_truncf(x); }); }
KW_INLINE void stream(float* to, F a) { __builtin_memcpy(to, &a, sizeof a); }
#endif
// a * 2^n in two steps, for the second power of two alone may overflow or be subnormal; |n| <= 252.
KW_INLINE F scale(F a, F n) {
  S i = __builtin_convertvector(n, S), half = i >> 1;
  return a * bits<F>((half + 127) << 23) * bits<F>((i - half + 127) << 23);
}
#endif
KW_INLINE F all(float x) { return x - F{}; }
constexpr int LANES = KW_VEC_BYTES / 4;
KW_INLINE F load(const float* from) { F a; __builtin_memcpy(&a, from, sizeof a); return a; }
KW_INLINE void store(float* to, F a) { __builtin_memcpy(to, &a, sizeof a); }
// Past the cache where a whole line is written, else the usual way.
template <class V> KW_INLINE void stream_store(float* to, const V& v) {
  if (C10_LIKELY(reinterpret_cast<uintptr_t>(to) % KW_VEC_BYTES == 0)) {
    _Pragma("GCC unroll 8") for (unsigned i = 0; i < sizeof v.r / sizeof(F); i++) stream(to + i * (KW_VEC_BYTES / 4), v.r[i]);
  } else {
    v.store(to);
  }
}
KW_INLINE void stream_fence() {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}
}  // namespace kw

namespace at::vec {
template <class T, int N> KW_INLINE Vec<T, N> maximum(const Vec<T, N>& a, const Vec<T, N>& b) {
  Vec<T, N> v;
  if constexpr (std::is_same_v<T, float>) KW_EACH v.r[i] = b.r[i] == b.r[i] ? kw::max(b.r[i], a.r[i]) : b.r[i];
  else if constexpr (KW_FLOATING) KW_EACH v.r[i] = b.r[i] != b.r[i] ? b.r[i] : b.r[i] > a.r[i] ? b.r[i] : a.r[i];
  else KW_EACH v.r[i] = a.r[i] > b.r[i] ? a.r[i] : b.r[i];
  return v;
}
template <class T, int N> KW_INLINE Vec<T, N> minimum(const Vec<T, N>& a, const Vec<T, N>& b) {
  Vec<T, N> v;
  if constexpr (std::is_same_v<T, float>) KW_EACH v.r[i] = b.r[i] == b.r[i] ? kw::min(b.r[i], a.r[i]) : b.r[i];
  else if constexpr (KW_FLOATING) KW_EACH v.r[i] = b.r[i] != b.r[i] ? b.r[i] : b.r[i] < a.r[i] ? b.r[i] : a.r[i];
  else KW_EACH v.r[i] = a.r[i] < b.r[i] ? a.r[i] : b.r[i];
  return v;
}
template <class T, int N> KW_INLINE Vec<T, N> clamp_min(const Vec<T, N>& a, const Vec<T, N>& low) {
  Vec<T, N> v;
  if constexpr (std::is_same_v<T, float>) KW_EACH v.r[i] = kw::max(low.r[i], a.r[i]);
  else KW_EACH v.r[i] = a.r[i] < low.r[i] ? low.r[i] : a.r[i];
  return v;
}
template <class T, int N> KW_INLINE Vec<T, N> clamp_max(const Vec<T, N>& a, const Vec<T, N>& high) {
  Vec<T, N> v;
  if constexpr (std::is_same_v<T, float>) KW_EACH v.r[i] = kw::min(high.r[i], a.r[i]);
  else KW_EACH v.r[i] = a.r[i] > high.r[i] ? high.r[i] : a.r[i];
  return v;
}
template <class T, int N> KW_INLINE Vec<T, N> clamp(const Vec<T, N>& a, const Vec<T, N>& low, const Vec<T, N>& high) { return clamp_max(clamp_min(a, low), high); }
template <class T, int N> KW_INLINE Vec<T, N> fmadd(const Vec<T, N>& a, const Vec<T, N>& b, const Vec<T, N>& c) {
  if constexpr (std::is_same_v<T, float>) { Vec<T, N> v; KW_EACH v.r[i] = kw::fma(a.r[i], b.r[i], c.r[i]); return v; }
  else return a * b + c;
}
template <class T, int N> KW_INLINE Vec<T, N> fmsub(const Vec<T, N>& a, const Vec<T, N>& b, const Vec<T, N>& c) { return fmadd(a, b, c.neg()); }

// Lane by lane conversion; as many lanes as the smaller side has.
template <class To, int M, class From, int K> KW_INLINE Vec<To, M> convert(const Vec<From, K>& from) {
  Vec<To, M> out;
  constexpr int V = Vec<To, M>::W, W = Vec<From, K>::W, step = W < V ? W : V;
  constexpr int lanes = V * M < W * K ? V * M : W * K;
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(&out, &from, sizeof(To) * lanes);
    return out;
  }
  _Pragma("GCC unroll 16") for (int k = 0; k < lanes; k += step) {
    kw::Register<kw::Raw<From>, step> part;
    __builtin_memcpy(&part, reinterpret_cast<const kw::Raw<From>*>(&from) + k, sizeof part);
    kw::Register<kw::Raw<To>, step> done;
    using Bits = kw::Register<uint32_t, step>;
    using Floats = kw::Register<float, step>;
    if constexpr (std::is_same_v<From, at::BFloat16>) {
      done = kw::converted<kw::Raw<To>, step>(kw::bits<Floats>(__builtin_convertvector(part, Bits) << 16));
    } else if constexpr (std::is_same_v<To, at::BFloat16>) {
      Floats value = kw::converted<float, step>(part);
      Bits b = kw::bits<Bits>(value), even = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
      done = __builtin_convertvector(value == value ? even : Bits{} + 0x7fc0, kw::Register<uint16_t, step>);
    } else if constexpr (std::is_same_v<From, at::Half>) {
      done = __builtin_convertvector(kw::bits<kw::Register<_Float16, step>>(part), kw::Register<kw::Raw<To>, step>);
    } else if constexpr (std::is_same_v<To, at::Half>) {
      done = kw::bits<kw::Register<uint16_t, step>>(__builtin_convertvector(part, kw::Register<_Float16, step>));
    } else if constexpr (std::is_same_v<To, bool>) {
      done = kw::converted<uint8_t, step>((part != 0) & 1);
    } else {
      done = kw::converted<kw::Raw<To>, step>(part);
    }
    __builtin_memcpy(reinterpret_cast<kw::Raw<To>*>(&out) + k, &done, sizeof done);
  }
  return out;
}
template <class To, class From> KW_INLINE Vec<To, 1> convert(const Vec<From, 1>& from) { return convert<To, 1, From, 1>(from); }
}  // namespace at::vec

namespace c10 {
template <class To, class From> KW_INLINE To convert(From from) { return static_cast<To>(from); }
template <class T> KW_INLINE T div_floor_integer(T a, T b) { T q = a / b; return (a % b != 0) && ((a < 0) != (b < 0)) ? q - 1 : q; }
}  // namespace c10
template <class T> KW_INLINE T max_propagate_nan(T a, T b) { return a != a ? a : a > b ? a : b; }
template <class T> KW_INLINE T min_propagate_nan(T a, T b) { return a != a ? a : a < b ? a : b; }

// Elementary functions. Those of float that matter most are polynomials and rationals of our own, within about 2 units in
// the last place and exact for NaN, infinities and zeros; the others call SLEEF, which torch brings along.
namespace kw {
// exp(x) = 2^n exp(r): |r| <= ln 2 / 2.
KW_INLINE F exp(F x) {
  F c = min(all(89.0f), max(all(-104.0f), x));
  const F magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  F n = fma(c, all(1.44269504f), magic) - magic;
  F r = fma(n, all(-1.42860677e-6f), fma(n, all(-0.693145752f), c));
  F q = fma(all(1.3814600e-3f), r, all(8.3687157e-3f));
  q = fma(q, r, all(4.1668389e-2f));
  q = fma(q, r, all(1.6666521e-1f));
  q = fma(q, r, all(0.49999994f));
  return scale(fma(q * r, r, r) + all(1.0f), n);
}
// log(x) = e ln 2 + log(m), sqrt(1/2) <= m < sqrt(2).
KW_INLINE F log(F x) {
  F y = x < all(1.17549435e-38f) ? x * all(8388608.0f) : x;  // subnormal
  S b = bits<S>(y), k = (b - 0x3f3504f3) & int32_t(0xff800000);
  F e = __builtin_convertvector(k >> 23, F) - (x < all(1.17549435e-38f) ? all(23.0f) : F{});
  F f = bits<F>(b - k) - all(1.0f);
  F q = fma(all(-7.6345183e-2f), f, all(1.2761673e-1f));
  q = fma(q, f, all(-1.3160220e-1f));
  q = fma(q, f, all(1.4201748e-1f));
  q = fma(q, f, all(-1.6623352e-1f));
  q = fma(q, f, all(2.0001227e-1f));
  q = fma(q, f, all(-2.5000823e-1f));
  q = fma(q, f, all(3.3333331e-1f));
  F s = f * f;
  F value = fma(e, all(0.693145752f), f + fma(e, all(1.42860677e-6f), fma(q * s, f, s * all(-0.5f))));
  const F infinity = all(__builtin_inff());
  value = x == infinity ? infinity : value;
  value = x == F{} ? -infinity : value;
  return x >= F{} ? value : all(__builtin_nanf(""));
}
// log(1 + x) by log of the rounded sum and what the rounding lost.
KW_INLINE F log1p(F x) {
  F w = all(1.0f) + x;
  F value = log(w) + (x - (w - all(1.0f))) / w;
  return x == all(__builtin_inff()) || w == F{} ? log(w) : x == F{} ? x : value;
}
// erf(x) = x P(x^2) / Q(x^2) up to 4, where it is 1.
KW_INLINE F erf(F x) {
  F c = min(all(4.0f), max(all(-4.0f), x)), s = c * c;
  F p = fma(all(1.9868348e-6f), s, all(2.8456259e-4f));
  p = fma(p, s, all(3.8831360e-3f));
  p = fma(p, s, all(5.3101089e-2f));
  p = fma(p, s, all(1.9354001e-1f));
  p = fma(p, s, all(1.1283791f));
  F q = fma(all(3.7420556e-5f), s, all(1.1855237e-3f));
  q = fma(q, s, all(1.5206827e-2f));
  q = fma(q, s, all(1.1534792e-1f));
  q = fma(q, s, all(5.0485295e-1f));
  q = fma(q, s, all(1.0f));
  return min(all(1.0f), max(all(-1.0f), c * p / q));
}
// tanh(x) = x P(x^2) / Q(x^2) below 9, and 1 with the sign of x from there on.
KW_INLINE F tanh(F x) {
  F c = min(all(9.02f), max(all(-9.02f), x)), s = c * c;
  F p = fma(all(-1.2203782e-11f), s, all(3.0585472e-8f));
  p = fma(p, s, all(2.8007653e-5f));
  p = fma(p, s, all(3.8683375e-3f));
  p = fma(p, s, all(1.3679917e-1f));
  p = fma(p, s, all(1.0f));
  F q = fma(all(1.2873799e-6f), s, all(3.9386482e-4f));
  q = fma(q, s, all(2.7245874e-2f));
  q = fma(q, s, all(4.7013256e-1f));
  q = fma(q, s, all(1.0f));
  return s >= all(81.0f) ? bits<F>((bits<S>(c) & INT32_MIN) | bits<S>(all(1.0f))) : c * p / q;
}
}  // namespace kw

#if KW_VEC_BYTES == 64
#define KW_SLEEF(name, accuracy) Sleef_##name##f16##accuracy
#define KW_SLEEF_D(name, accuracy) Sleef_##name##d8##accuracy
#elif KW_VEC_BYTES == 32
#define KW_SLEEF(name, accuracy) Sleef_##name##f8##accuracy
#define KW_SLEEF_D(name, accuracy) Sleef_##name##d4##accuracy
#else
#define KW_SLEEF(name, accuracy) Sleef_##name##f4##accuracy
#define KW_SLEEF_D(name, accuracy) Sleef_##name##d2##accuracy
#endif
namespace kw { using D = Register<double, KW_VEC_BYTES / 8>; }
namespace at::vec {
#define KW_FROM_SLEEF(method, name, accuracy) \
  extern "C" kw::F KW_SLEEF(name, accuracy)(kw::F); \
  extern "C" kw::D KW_SLEEF_D(name, accuracy)(kw::D); \
  template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::method() const { \
    if constexpr (std::is_same_v<T, float>) return each([](kw::F x) { return KW_SLEEF(name, accuracy)(x); }); \
    else return each([](kw::D x) { return KW_SLEEF_D(name, accuracy)(x); }); \
  }
#define KW_FROM_SLEEF_2(method, name, accuracy) \
  extern "C" kw::F KW_SLEEF(name, accuracy)(kw::F, kw::F); \
  extern "C" kw::D KW_SLEEF_D(name, accuracy)(kw::D, kw::D); \
  template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::method(const Vec& b) const { \
    Vec v; \
    if constexpr (std::is_same_v<T, float>) KW_EACH v.r[i] = KW_SLEEF(name, accuracy)(r[i], b.r[i]); \
    else KW_EACH v.r[i] = KW_SLEEF_D(name, accuracy)(r[i], b.r[i]); \
    return v; \
  }
#define KW_OWN(method, name, accuracy) \
  extern "C" kw::D KW_SLEEF_D(name, accuracy)(kw::D); \
  template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::method() const { \
    if constexpr (std::is_same_v<T, float>) return each([](kw::F x) { return kw::name(x); }); \
    else return each([](kw::D x) { return KW_SLEEF_D(name, accuracy)(x); }); \
  }
KW_OWN(exp, exp, _u10) KW_OWN(exp_u20, exp, _u10) KW_OWN(fexp_u20, exp, _u10) KW_OWN(log, log, _u10) KW_OWN(log1p, log1p, _u10)
KW_OWN(erf, erf, _u10) KW_OWN(tanh, tanh, _u10)
KW_FROM_SLEEF(exp2, exp2, _u10) KW_FROM_SLEEF(expm1, expm1, _u10) KW_FROM_SLEEF(erfc, erfc, _u15) KW_FROM_SLEEF(log2, log2, _u10)
KW_FROM_SLEEF(log10, log10, _u10) KW_FROM_SLEEF(sin, sin, _u10) KW_FROM_SLEEF(cos, cos, _u10) KW_FROM_SLEEF(tan, tan, _u10)
KW_FROM_SLEEF(sinh, sinh, _u10) KW_FROM_SLEEF(cosh, cosh, _u10) KW_FROM_SLEEF(asin, asin, _u10) KW_FROM_SLEEF(acos, acos, _u10)
KW_FROM_SLEEF(atan, atan, _u10) KW_FROM_SLEEF(asinh, asinh, _u10) KW_FROM_SLEEF(acosh, acosh, _u10) KW_FROM_SLEEF(atanh, atanh, _u10)
KW_FROM_SLEEF(lgamma, lgamma, _u10) KW_FROM_SLEEF_2(pow, pow, _u10) KW_FROM_SLEEF_2(atan2, atan2, _u10)
KW_FROM_SLEEF_2(fmod, fmod, ) KW_FROM_SLEEF_2(hypot, hypot, _u05)
template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::sqrt() const {
  if constexpr (std::is_same_v<T, float>) return each([](kw::F x) { return kw::sqrt(x); });
  else return lanes([](T x) { return __builtin_sqrt(x); });
}
template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::rsqrt() const { return Vec(1) / sqrt(); }
#define KW_ROUNDED(method, mode, function) \
  template <class T, int N> KW_INLINE Vec<T, N> Vec<T, N>::method() const { \
    if constexpr (std::is_same_v<T, float>) return each([](kw::F x) { return kw::rounded<mode>(x); }); \
    else return lanes([](T x) { return __builtin_##function(x); }); \
  }
KW_ROUNDED(round, 8, rint) KW_ROUNDED(floor, 9, floor) KW_ROUNDED(ceil, 10, ceil) KW_ROUNDED(trunc, 11, trunc)
}  // namespace at::vec

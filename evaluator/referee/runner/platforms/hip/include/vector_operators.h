// Operators of HIP's vector types, for the emulation and for clang. A kernel's own functions go before these templates.
#pragma once

template <class V> inline constexpr int hip_width = 0;
#define HIP_WIDTHS(name)                            \
  template <> inline constexpr int hip_width<name##2> = 2; \
  template <> inline constexpr int hip_width<name##3> = 3; \
  template <> inline constexpr int hip_width<name##4> = 4;
HIP_WIDTHS(float) HIP_WIDTHS(double) HIP_WIDTHS(int) HIP_WIDTHS(uint) HIP_WIDTHS(short) HIP_WIDTHS(ushort)
HIP_WIDTHS(char) HIP_WIDTHS(uchar) HIP_WIDTHS(long) HIP_WIDTHS(ulong) HIP_WIDTHS(longlong) HIP_WIDTHS(ulonglong)
#undef HIP_WIDTHS

#define HIP_VECTOR_OPERATOR(op)                                                            \
  template <class V>                                                                       \
    requires(hip_width<V> > 0)                                                             \
  __device__ inline V& operator op##=(V& a, const V& b) {                                  \
    a.x op##= b.x;                                                                         \
    a.y op##= b.y;                                                                         \
    if constexpr (hip_width<V> > 2) a.z op##= b.z;                                         \
    if constexpr (hip_width<V> > 3) a.w op##= b.w;                                         \
    return a;                                                                              \
  }                                                                                        \
  template <class V>                                                                       \
    requires(hip_width<V> > 0)                                                             \
  __device__ inline V operator op(V a, const V& b) { return a op##= b; }                   \
  template <class V>                                                                       \
    requires(hip_width<V> > 0)                                                             \
  __device__ inline V& operator op##=(V& a, decltype(V::x) b) {                            \
    a.x op##= b;                                                                           \
    a.y op##= b;                                                                           \
    if constexpr (hip_width<V> > 2) a.z op##= b;                                           \
    if constexpr (hip_width<V> > 3) a.w op##= b;                                           \
    return a;                                                                              \
  }                                                                                        \
  template <class V>                                                                       \
    requires(hip_width<V> > 0)                                                             \
  __device__ inline V operator op(V a, decltype(V::x) b) { return a op##= b; }             \
  template <class V>                                                                       \
    requires(hip_width<V> > 0)                                                             \
  __device__ inline V operator op(decltype(V::x) a, V b) {                                 \
    b.x = a op b.x;                                                                        \
    b.y = a op b.y;                                                                        \
    if constexpr (hip_width<V> > 2) b.z = a op b.z;                                        \
    if constexpr (hip_width<V> > 3) b.w = a op b.w;                                        \
    return b;                                                                              \
  }
HIP_VECTOR_OPERATOR(+)
HIP_VECTOR_OPERATOR(-)
HIP_VECTOR_OPERATOR(*)
HIP_VECTOR_OPERATOR(/)
#undef HIP_VECTOR_OPERATOR

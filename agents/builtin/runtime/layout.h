// Transposition in registers, atomic addition, strided loads.
template <class T, int M, int N, bool = false> KW_INLINE void transpose_mxn(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  constexpr int W = at::vec::Vec<T, 1>::W;
  if constexpr (sizeof(T) == 4 && M <= W && N <= W) {
    using B = kw::Register<int32_t, W>;
    B rows[W];
    _Pragma("GCC unroll 16") for (int i = 0; i < W; i++) rows[i] = i < M ? kw::bits<B>(at::vec::Vec<T, 1>::loadu(from + i * from_stride, N).r[0]) : B{};
    const B lane = kw::lane_numbers<B, int32_t>();
    _Pragma("GCC unroll 4") for (int s = 1; s < W; s *= 2) {
      const B upper = (lane & s) != 0;
      const B low = upper ? lane - s + W : lane, high = upper ? lane + W : lane + s;
      _Pragma("GCC unroll 16") for (int i = 0; i < W; i++)
        if ((i & s) == 0) {
          B a = rows[i], b = rows[i + s];
          rows[i] = __builtin_shuffle(a, b, low);
          rows[i + s] = __builtin_shuffle(a, b, high);
        }
    }
    _Pragma("GCC unroll 16") for (int j = 0; j < N; j++) {
      at::vec::Vec<T, 1> v;
      v.r[0] = kw::bits<typename at::vec::Vec<T, 1>::R>(rows[j]);
      v.store(to + j * to_stride, M);
    }
  } else {
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) to[j * to_stride + i] = from[i * from_stride + j];
  }
}
template <class T> KW_INLINE void atomic_add(volatile T* to, T value) {
  using B = kw::Int<T>;
  auto* cell = reinterpret_cast<volatile B*>(to);
  B before = __atomic_load_n(cell, __ATOMIC_RELAXED), after;
  do after = kw::bits<B>(T(kw::bits<T>(before) + value));
  while (!__atomic_compare_exchange_n(cell, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
template <class T, int NI, int NV> KW_INLINE void atomic_add_vec(T* to, const at::vec::Vec<int64_t, NI>& index, const at::vec::Vec<T, NV>& value, int64_t count = at::vec::Vec<int64_t, NI>::size()) {
  T values[at::vec::Vec<T, NV>::size()];
  int64_t indices[at::vec::Vec<int64_t, NI>::size()];
  value.store(values);
  index.store(indices);
  for (int64_t i = 0; i < count; i++) atomic_add(to + indices[i], values[i]);
}
namespace kw {
// Every S-th float from p on: no byte beyond the last lane is touched.
template <int S> KW_INLINE at::vec::Vec<float, 1> strided(const float* p) {
  constexpr int W = KW_VEC_BYTES / 4;
  at::vec::Vec<float, 1> v;
  if constexpr (S == 1) return at::vec::Vec<float, 1>::loadu(p);
  else if constexpr (S == 2) {
    F low, high;
    __builtin_memcpy(&low, p, sizeof low);
    __builtin_memcpy(&high, p + W - 1, sizeof high);
    const Register<int32_t, W> lane = lane_numbers<Register<int32_t, W>, int32_t>();
    v.r[0] = __builtin_shuffle(low, high, lane < W / 2 ? lane * 2 : lane * 2 + 1);
  } else {
    for (int i = 0; i < W; i++) v.r[0][i] = p[S * i];
  }
  return v;
}
// The same where the mask is set, zero elsewhere; what the mask excludes is not read.
template <int S, class T, int N> KW_INLINE at::vec::Vec<float, 1> strided(const float* p, const at::vec::VecMask<T, N>& mask) {
  uint64_t some = mask.lane_bits();
  if (C10_LIKELY(some == mask.every_lane)) return strided<S>(p);
  constexpr int W = KW_VEC_BYTES / 4;
  at::vec::Vec<float, 1> v;
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
  v.r[0] = __builtin_ia32_gathersiv16sf(F{}, p, lane_numbers<Register<int32_t, W>, int32_t>() * S, uint16_t(some), 4);
#else
  for (int i = 0; i < W; i++)
    if ((some >> i) & 1) v.r[0][i] = p[S * i];
#endif
  return v;
}
// p[index] in each lane. Where the indices ascend within one vector's width, as in a resized row, one load and one
// permutation do; the load is masked, so that no byte beyond the last index is touched.
template <class A> KW_INLINE at::vec::Vec<float, 1> lookup(const float* p, const A& indices) {
  constexpr int W = KW_VEC_BYTES / 4;
  at::vec::Vec<float, 1> v;
#if defined(__AVX512F__) && KW_VEC_BYTES == 64
  using Wide = at::vec::Vec<int64_t, 2>;
  using I = Register<int32_t, W>;
  const int64_t first = indices[0], width = indices[W - 1] - first;
  if (C10_LIKELY(width >= 0 && width < W)) {
    const auto offset = Wide::loadu(indices.data()) - Wide(first);
    if (C10_LIKELY(((offset >= Wide(0)) & (offset <= Wide(width))).all_masked())) {
      const I lane = at::vec::convert<int32_t, 1, int64_t, 2>(offset).r[0];
      F window = __builtin_ia32_loadups512_mask(p + first, F{}, uint16_t((2u << width) - 1));
      v.r[0] = __builtin_shuffle(window, lane);
      return v;
    }
  }
#endif
  for (int i = 0; i < W; i++) v.r[0][i] = p[indices[i]];
  return v;
}
// The running reduction of a vector's lanes, by doubling distances.
template <class Fn> KW_INLINE at::vec::Vec<float, 1> running(at::vec::Vec<float, 1> v, Fn f, float neutral) {
  constexpr int W = KW_VEC_BYTES / 4;
  const S lane = lane_numbers<S, int32_t>();
  _Pragma("GCC unroll 4") for (int n = 1; n < W; n *= 2) {
    F moved = __builtin_shuffle(all(neutral), v.r[0], lane < n ? lane : lane - n + W);
    v.r[0] = f(moved, v.r[0]);
  }
  return v;
}
}  // namespace kw

// Transposition in registers and atomic addition.
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

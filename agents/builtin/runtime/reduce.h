// Reductions over the lanes of a vector, and accumulators that keep their precision over long rows.
namespace at::vec {
template <class T, int N, class Fn> KW_INLINE T vec_reduce_all(Fn f, const Vec<T, N>& v) {
  Vec<T, 1> acc = v[0];
  _Pragma("GCC unroll 16") for (int i = 1; i < N; i++) { Vec<T, 1> next = v[i]; acc = f(acc, next); }
  using R = typename Vec<T, 1>::R;
  using M = kw::Register<kw::Int<T>, Vec<T, 1>::W>;
  _Pragma("GCC unroll 8") for (int n = Vec<T, 1>::W / 2; n >= 1; n /= 2) {
    Vec<T, 1> other;
    other.r[0] = kw::bits<R>(__builtin_shuffle(kw::bits<M>(acc.r[0]), (kw::lane_numbers<M, kw::Int<T>>() + kw::Int<T>(n)) & kw::Int<T>(Vec<T, 1>::W - 1)));
    acc = f(acc, other);
  }
  return kw::bits<T>(kw::Raw<T>(acc.r[0][0]));
}
}  // namespace at::vec
#define KW_MASKED(name, expression) template <class V> KW_INLINE V name##_masked_reduce(const V& a, const V& b, int64_t count) { return V::set(a, expression, count); }
KW_MASKED(max, at::vec::maximum(a, b)) KW_MASKED(min, at::vec::minimum(a, b)) KW_MASKED(sum, a + b) KW_MASKED(prod, a * b)
KW_MASKED(xor_sum, a ^ b) KW_MASKED(any, a | b)

template <class T> struct ScalarOf { using type = T; };
template <class T, int N> struct ScalarOf<at::vec::Vec<T, N>> { using type = T; };

// A sum in chunks: what is added to the running sum is never much smaller than it.
template <class T, uint64_t = 0> struct CascadeSumHelper {
  T sum = T(0), total = T(0);
  int count = 0;
  CascadeSumHelper(uint64_t = 0) {}
};
template <class T, uint64_t C> KW_INLINE T cascade_sum_combine(T& data, CascadeSumHelper<T, C>* h) {
  h->sum = h->sum + data;
  if (++h->count == 256) { h->total = h->total + h->sum; h->sum = T(0); h->count = 0; }
  return h->sum;
}
template <class T, uint64_t C> KW_INLINE T cascade_sum_combine(T& data, int64_t count, CascadeSumHelper<T, C>* h) {
  h->sum = T::set(h->sum, h->sum + data, count);
  return h->sum;
}
template <class T, uint64_t C> KW_INLINE T cascade_sum_final(CascadeSumHelper<T, C>* h) { return h->total + h->sum; }

// Mean and sum of squared deviations in one pass (Welford, 1962; Chan et al., 1979), in chunks.
template <class T> struct Welford { T mean = T(0), m2 = T(0), weight = T(0); uint64_t index = 0; };
template <class T, uint64_t = 0> struct WelfordHelper {
  Welford<T> total;
  WelfordHelper(uint64_t = 0) {}
};
namespace kw {
constexpr uint64_t chunk = 1024;
template <class T> struct Reciprocals { T of[chunk + 1]; Reciprocals() { for (uint64_t i = 0; i <= chunk; i++) of[i] = T(1) / T(i); } };
template <class T> inline const Reciprocals<T> reciprocals;
template <class T> KW_INLINE T finite_or(T ratio, T weight) {
  if constexpr (std::is_arithmetic_v<T>) return weight == T(0) ? T(0) : ratio;
  else return T::blendv(ratio, T(0), weight == T(0));
}
template <class T> KW_INLINE T distance(const T& a, const T& b) {
  if constexpr (std::is_arithmetic_v<T>) return a == b ? T(0) : b - a;
  else return T::blendv(b - a, T(0), a == b);
}
}  // namespace kw
template <class T> KW_INLINE Welford<T> welford_combine(const Welford<T>& a, const Welford<T>& b, bool = false) {
  if (a.index == 0) return b;
  if (b.index == 0) return a;
  T delta = kw::distance(a.mean, b.mean), weight = a.weight + b.weight, share = kw::finite_or(b.weight / weight, weight);
  return {a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.weight * share, weight, a.index + b.index};
}
template <class T, uint64_t C = 0> KW_INLINE Welford<T> welford_combine(Welford<T>& acc, T& data, WelfordHelper<T, C>* h = nullptr) {
  if (h != nullptr && acc.index == kw::chunk) {
    h->total = welford_combine(h->total, acc);
    acc = Welford<T>();
  }
  using S = typename ScalarOf<T>::type;
  uint64_t index = acc.index + 1;
  T delta = data - acc.mean;
  T mean = acc.mean + (index <= kw::chunk ? delta * T(kw::reciprocals<S>.of[index]) : delta / T(S(index)));
  return {mean, acc.m2 + delta * (data - mean), acc.weight + T(1), index};
}
template <class T, uint64_t C = 0> KW_INLINE Welford<T> welford_combine(Welford<T>& acc, T& data, int64_t count, WelfordHelper<T, C>* h = nullptr) {
  Welford<T> out = welford_combine(acc, data, h);
  return {T::set(acc.mean, out.mean, count), T::set(acc.m2, out.m2, count), T::set(acc.weight, out.weight, count), out.index};
}
template <class T, uint64_t C> KW_INLINE Welford<T> welford_combine(Welford<T>& acc, WelfordHelper<T, C>* h) {
  Welford<T> out = welford_combine(h->total, acc);
  h->total = Welford<T>();  // the helper may be static
  return out;
}
template <class T, int N> KW_INLINE Welford<T> welford_vec_reduce_all(const Welford<at::vec::Vec<T, N>>& acc) {
  Welford<T> out;
  if (acc.index == 0) return out;
  for (int i = 0; i < N; i++)
    for (int k = 0; k < at::vec::Vec<T, 1>::W; k++) {
      T weight = acc.weight.r[i][k];
      out = welford_combine(out, Welford<T>{acc.mean.r[i][k], acc.m2.r[i][k], weight, uint64_t(weight)});
    }
  return out;
}

// Positions of extremes: the first of equals, NaN before everything.
template <class T> struct IndexValue { int64_t index{}; T value{}; };
namespace kw {
template <bool greatest, class T> KW_INLINE bool keeps(T a, T b, int64_t i, int64_t k) {
  if (a != a) return b == b || i < k;
  return a == b ? i < k : (greatest ? a > b : a < b);
}
template <bool greatest, class T> KW_INLINE IndexValue<T>& pick(IndexValue<T>& a, T value, int64_t index) {
  if (!keeps<greatest>(a.value, value, a.index, index)) a = {index, value};
  return a;
}
}  // namespace kw
template <class T> KW_INLINE IndexValue<T>& argmax_combine(IndexValue<T>& a, T value, int64_t index) { return kw::pick<true>(a, value, index); }
template <class T> KW_INLINE IndexValue<T>& argmin_combine(IndexValue<T>& a, T value, int64_t index) { return kw::pick<false>(a, value, index); }
template <class T> KW_INLINE IndexValue<T>& argmax_combine(IndexValue<T>& a, const IndexValue<T>& b) { return kw::pick<true>(a, b.value, b.index); }
template <class T> KW_INLINE IndexValue<T>& argmin_combine(IndexValue<T>& a, const IndexValue<T>& b) { return kw::pick<false>(a, b.value, b.index); }
template <class T, int NV, int NI> struct IndexValueVec {
  at::vec::Vec<T, NV> value;
  at::vec::Vec<int64_t, NI> index;
  KW_INLINE IndexValueVec() {}
  KW_INLINE IndexValueVec(T v) : value(v), index(0) {}
};
namespace kw {
template <bool greatest, class T, int NV, int NI>
KW_INLINE IndexValueVec<T, NV, NI>& pick(IndexValueVec<T, NV, NI>& a, const at::vec::Vec<T, NV>& value, const at::vec::Vec<int64_t, NI>& index, int64_t count) {
  auto better = (greatest ? value > a.value : value < a.value) | (value.isnan() & ~a.value.isnan());
  auto equal = (value == a.value) | (value.isnan() & a.value.isnan());
  auto take = better.template cast<int64_t, NI>() | (equal.template cast<int64_t, NI>() & (index < a.index));
  if (count < at::vec::Vec<int64_t, NI>::size()) take = take & at::vec::VecMask<int64_t, NI>::first(count);
  a.index = at::vec::Vec<int64_t, NI>::blendv(a.index, index, take);
  a.value = at::vec::Vec<T, NV>::blendv(a.value, value, take.template cast<T, NV>());
  return a;
}
}  // namespace kw
#define KW_ARG(name, greatest) \
  template <class T, int NV, int NI, bool horizontal> KW_INLINE IndexValueVec<T, NV, NI>& name##_combine_vec(IndexValueVec<T, NV, NI>& a, const at::vec::Vec<T, NV>& value, int64_t index, int64_t count = 1 << 20) { \
    return kw::pick<greatest>(a, value, horizontal ? at::vec::Vec<int64_t, NI>::arange(index, 1) : at::vec::Vec<int64_t, NI>(index), count); \
  } \
  template <class T, int NV, int NI> KW_INLINE IndexValueVec<T, NV, NI>& name##_combine_vec(IndexValueVec<T, NV, NI>& a, const at::vec::Vec<T, NV>& value, const at::vec::Vec<int64_t, NI>& index, int64_t count = 1 << 20) { return kw::pick<greatest>(a, value, index, count); } \
  template <class T, int NV, int NI> KW_INLINE IndexValueVec<T, NV, NI>& name##_combine_vec(IndexValueVec<T, NV, NI>& a, const IndexValueVec<T, NV, NI>& b, int64_t count = 1 << 20) { return kw::pick<greatest>(a, b.value, b.index, count); } \
  template <class T, int NV, int NI> KW_INLINE IndexValue<T> name##_vec_reduce_all(const IndexValueVec<T, NV, NI>& v) { \
    constexpr int lanes = at::vec::Vec<int64_t, NI>::size(); \
    T values[at::vec::Vec<T, NV>::size()]; \
    int64_t indices[lanes]; \
    v.value.store(values); \
    v.index.store(indices); \
    IndexValue<T> best{indices[0], values[0]}; \
    for (int i = 1; i < lanes; i++) best = kw::pick<greatest>(best, values[i], indices[i]); \
    return best; \
  }
KW_ARG(argmax, true) KW_ARG(argmin, false)

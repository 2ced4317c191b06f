// Division of integers as Python and torch define it. A divisor of zero ends the process, where torch raises.
namespace kw {
template <class T> KW_INLINE T floor_quotient(T a, T b) {
  TORCH_CHECK(b != 0, "integer division by zero");
  return c10::div_floor_integer(a, b);
}
template <class T> KW_INLINE T floor_remainder(T a, T b) {
  TORCH_CHECK(b != 0, "integer remainder by zero");
  if (b == T(-1)) return 0;  // the quotient of the least number would overflow
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
}  // namespace kw
template <class T, class U> KW_INLINE std::common_type_t<T, U> floor_divide_integral(T a, U b) { return kw::floor_quotient<std::common_type_t<T, U>>(a, b); }
template <class T, int N> KW_INLINE at::vec::Vec<T, N> floor_divide_integral(const at::vec::Vec<T, N>& a, const at::vec::Vec<T, N>& b) { return a.lanes([](T x, T y) { return kw::floor_quotient(x, y); }, b); }
template <class T> KW_INLINE T remainder_integral(T a, T b) { return kw::floor_remainder(a, b); }
template <class T, int N> KW_INLINE at::vec::Vec<T, N> remainder_integral(const at::vec::Vec<T, N>& a, const at::vec::Vec<T, N>& b) { return a.lanes([](T x, T y) { return kw::floor_remainder(x, y); }, b); }
template <class T> KW_INLINE T mod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
  else { TORCH_CHECK(b != 0, "integer remainder by zero"); return b == T(-1) ? T(0) : T(a % b); }
}
// floor(a / b) by the remainder, which is exact where the quotient is not.
template <class T, int N> KW_INLINE at::vec::Vec<T, N> div_floor_floating_vec(const at::vec::Vec<T, N>& a, const at::vec::Vec<T, N>& b) {
  return a.lanes([](T x, T y) {
    if (y == 0) return x / y;
    T r = std::fmod(x, y), q = (x - r) / y;
    if (r != 0 && (y < 0) != (r < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), x / y);
    T f = std::floor(q);
    return q - f > T(0.5) ? f + 1 : f;
  }, b);
}

// A kernel that a program launches by torch.cuda._compile_kernel: arguments come as a pointer to each, as torch passes them
// (torch/cuda/_utils.py): a tensor as its address, an int as 32 bits, a float as a double.
#pragma once
#include "runtime.h"

namespace cuh {

template <class P>
void check_argument(const std::string& kernel, size_t number, char kind) {
  const char* given = kind == 'p' ? "a tensor" : kind == 'i' ? "an int" : "a float";
  const bool fits = kind == 'p'   ? std::is_pointer_v<P>
                    : kind == 'i' ? (std::is_integral_v<P> || std::is_enum_v<P>)&&sizeof(P) <= sizeof(int)
                                  : std::is_same_v<std::remove_cv_t<P>, double>;
  if (fits) return;
  const char* passed = kind == 'p' ? "an address" : kind == 'i' ? "32 bits" : "a double";
  throw Fault("argument " + std::to_string(number) + " of " + kernel + " is " + given + ", which torch passes as " + passed +
              "; the kernel takes another type there");
}

template <class... P>
void launch_plain(const std::string& name, void (*kernel)(P...), const Config& config, const char* kinds, void** given) {
  if (std::strlen(kinds) != sizeof...(P))
    throw Fault(name + " takes " + std::to_string(sizeof...(P)) + " arguments and is given " +
                std::to_string(std::strlen(kinds)));
  size_t number = 0;
  ((number++, check_argument<P>(name, number, kinds[number - 1])), ...);
  size_t at = 0;
  const auto next = [&](auto* type) {
    std::remove_pointer_t<decltype(type)> value;
    std::memcpy(&value, given[at++], sizeof value);
    return value;
  };
  std::tuple<P...> values{next(static_cast<std::remove_cv_t<P>*>(nullptr))...};
  launch_with(name, kernel, config, values);
}

inline thread_local std::string told;

// What went wrong, or null.
template <class Call>
const char* guarded(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    told = error.what();
    return told.c_str();
  }
  return nullptr;
}

}  // namespace cuh

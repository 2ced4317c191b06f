// A program that makes recorded launches again and says what it saw. The including file defines `cuh_entries`.
//
//   replay TRACE OUTPUTS ORDER     OUTPUTS: what all memory holds at the end
//
// It prints one line of JSON: {"launches": 2, "fault": ""}.
#pragma once
#include <bit>

#include "runtime.h"

namespace cuh {

// A record that cannot be replayed, which says nothing of the kernels.
struct Broken : Fault {
  using Fault::Fault;
};

using Thunk = void (*)(const std::string&, const Config&, size_t, std::vector<std::string>&);

template <auto kernel, class... P>
void call(void (*)(P...), const std::string& name, const Config& config, size_t limit, std::vector<std::string>& given) {
  const size_t sizes[] = {sizeof(P)..., 0};
  if (given.size() != sizeof...(P)) throw Broken("the record of launches has another number of arguments");
  for (size_t i = 0; i < given.size(); i++)
    if (given[i].size() != sizes[i]) throw Broken("the record of launches has arguments of other sizes");
  size_t at = 0;
  const auto next = [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    alignas(T) std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), given[at++].data(), sizeof(T));
    return std::bit_cast<T>(bytes);
  };
  std::tuple<P...> values{next(static_cast<std::remove_cv_t<P>*>(nullptr))...};
  auto body = [&] { std::apply(kernel, values); };
  run_grid(name, config.grid, config.block, config.dynamic_bytes, limit, run_body<decltype(body)>, &body);
}

template <auto kernel>
void thunk(const std::string& name, const Config& config, size_t limit, std::vector<std::string>& given) {
  call<kernel>(kernel, name, config, limit, given);
}

struct Entry {
  const char* name;
  Thunk thunk;
};
struct Symbol {
  const char* name;
  void* place;
  size_t bytes;
};

int replay(int count, char** words, const std::vector<Entry>& entries, const std::vector<Symbol>& symbols);

}  // namespace cuh

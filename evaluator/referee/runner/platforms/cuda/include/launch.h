// Launches: what stands between <<< and >>>, and kernels by name, pointer or the arguments that they are given.
#pragma once
#include "engine.h"

namespace cuh {

// A launch as the candidate writes it: grid, block, dynamic shared memory, stream.
struct Config {
  dim3 grid, block;
  size_t dynamic_bytes;
  Config(dim3 grid, dim3 block, size_t dynamic_bytes = 0, void* = nullptr)
      : grid(grid), block(block), dynamic_bytes(dynamic_bytes) {}
};

// The name of a function as the compiler writes it, template arguments and all.
template <auto kernel>
std::string name_of() {
  std::string text = __PRETTY_FUNCTION__;
  const size_t from = text.find("kernel = ") + 9;
  text = text.substr(from, text.rfind("; std::string") != std::string::npos && text.rfind("; std::string") > from
                               ? text.rfind("; std::string") - from
                               : text.rfind(']') - from);
  for (size_t at; (at = text.find("{anonymous}::")) != std::string::npos;) text.erase(at, 13);
  return text;
}

// Which kernels may use more dynamic shared memory than 48 KiB, as the program has asked for.
inline std::vector<std::pair<const void*, size_t>> shared_limits;

inline size_t shared_limit_of(const void* kernel) {
  for (auto& [function, bytes] : shared_limits)
    if (function == kernel) return std::max(bytes, plain_shared_bytes);
  return plain_shared_bytes;
}

// One argument of a launch as bytes, for whoever watches launches.
struct Argument {
  const void* bytes;
  size_t size;
};

struct Watcher {
  virtual ~Watcher() = default;
  // Returns whether the grid is to be run.
  virtual bool before(const std::string& kernel, const Config& config, size_t shared_limit,
                      const std::vector<Argument>& arguments) = 0;
  virtual void after() = 0;
};
inline Watcher* watcher = nullptr;

template <class... P>
void launch_with(const std::string& name, void (*kernel)(P...), const Config& config, std::tuple<P...>& values) {
  const size_t limit = shared_limit_of(reinterpret_cast<const void*>(kernel));
  check_launch(name, config.grid, config.block, config.dynamic_bytes, limit);
  bool run = true;
  if (watcher) {
    std::vector<Argument> arguments;
    std::apply([&](auto&... each) { (arguments.push_back({&each, sizeof each}), ...); }, values);
    run = watcher->before(name, config, limit, arguments);
  }
  if (run)
    run_grid(name, config.grid, config.block, config.dynamic_bytes, limit, [&] { std::apply(kernel, values); });
  if (watcher) watcher->after();
}

template <class... P>
struct Launcher {
  std::string name;
  void (*kernel)(P...);
  Config config;
  template <class... A>
  void operator()(A&&... given) {
    static_assert(sizeof...(A) == sizeof...(P), "a kernel is launched with another number of arguments");
    std::tuple<P...> values{static_cast<P>(std::forward<A>(given))...};
    launch_with(name, kernel, config, values);
  }
};

template <class... P>
Launcher<P...> launcher(std::string name, void (*kernel)(P...), const Config& config) {
  return {std::move(name), kernel, config};
}

template <auto kernel>
auto launch(const Config& config) {
  return launcher(name_of<kernel>(), kernel, config);
}

// A kernel that is named by a variable: it runs, but cannot be launched again elsewhere by its name.
template <class... P>
Launcher<P...> launch_pointer(void (*kernel)(P...), const Config& config) {
  return {"?", kernel, config};
}

// A kernel whose template arguments follow from the arguments of its launch.
template <class Call>
struct DeducedLauncher {
  Call call;
  Config config;
  template <class... A>
  void operator()(A&&... given) {
    std::tuple<std::decay_t<A>...> values{std::forward<A>(given)...};
    bool run = true;
    if (watcher) {
      std::vector<Argument> arguments;
      std::apply([&](auto&... each) { (arguments.push_back({&each, sizeof each}), ...); }, values);
      run = watcher->before("?", config, plain_shared_bytes, arguments);
    }
    if (run)
      run_grid("a kernel", config.grid, config.block, config.dynamic_bytes, plain_shared_bytes,
               [&] { std::apply(call, values); });
    if (watcher) watcher->after();
  }
};

template <class Call>
DeducedLauncher<Call> launch_deduced(Call call, const Config& config) {
  return {call, config};
}

}  // namespace cuh

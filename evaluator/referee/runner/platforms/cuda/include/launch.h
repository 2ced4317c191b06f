// Launches: what stands between <<< and >>>, and kernels by name, pointer or the arguments that they are given.
#pragma once
#include <array>

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
std::string name_in(const char* pretty);
template <auto kernel>
std::string name_of() {
  return name_in(__PRETTY_FUNCTION__);
}

// The name of the kernel at an address: `?` where the program's symbols do not tell, as of one that is static.
std::string name_at(const void* kernel);

// A kernel may use more dynamic shared memory than 48 KiB where the program has asked for it.
void allow_shared(const void* kernel, size_t bytes);
size_t shared_limit_of(const void* kernel);

// One argument of a launch as bytes, for whoever watches launches.
struct Argument {
  const void* bytes;
  size_t size;
};

struct Watcher {
  virtual ~Watcher() = default;
  // Returns whether the grid is to be run.
  virtual bool before(const std::string& kernel, const Config& config, size_t shared_limit, const Argument* arguments,
                      size_t count) = 0;
  virtual void after() = 0;
};
extern Watcher* watcher;

// Checks a launch, tells whoever watches, and runs `entry(argument)` in each thread.
void launch_grid(const std::string& name, const Config& config, size_t shared_limit, const Argument* arguments,
                 size_t count, void (*entry)(void*), void* argument);

template <class Call, class... P>
void launch_call(const std::string& name, Call& call, const Config& config, size_t shared_limit,
                 std::tuple<P...>& values) {
  const auto told = std::apply(
      [](auto&... each) { return std::array<Argument, sizeof...(P)>{{{&each, sizeof each}...}}; }, values);
  auto body = [&] { std::apply(call, values); };
  launch_grid(name, config, shared_limit, told.data(), told.size(), run_body<decltype(body)>, &body);
}

template <class... P>
void launch_with(const std::string& name, void (*kernel)(P...), const Config& config, std::tuple<P...>& values) {
  launch_call(name, kernel, config, shared_limit_of(reinterpret_cast<const void*>(kernel)), values);
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

// A kernel that is named by a variable, as where one of several is chosen.
template <class... P>
Launcher<P...> launch_pointer(void (*kernel)(P...), const Config& config) {
  return {name_at(reinterpret_cast<const void*>(kernel)), kernel, config};
}

// A kernel whose template arguments follow from the arguments of its launch: it runs, but cannot be launched again
// elsewhere by its name.
template <class Call>
struct DeducedLauncher {
  Call call;
  Config config;
  template <class... A>
  void operator()(A&&... given) {
    std::tuple<std::decay_t<A>...> values{std::forward<A>(given)...};
    launch_call("?", call, config, plain_shared_bytes, values);
  }
};

template <class Call>
DeducedLauncher<Call> launch_deduced(Call call, const Config& config) {
  return {call, config};
}

}  // namespace cuh

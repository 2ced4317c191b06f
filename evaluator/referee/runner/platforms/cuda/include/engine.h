// CUDA C++ on a host's processor, to see whether a kernel is right; it says nothing about its speed.
//
// One block at a time; a CUDA thread is a fiber that gives way at barriers and warp operations alone. Nothing a kernel
// reads before it is written holds zeros by chance: shared memory starts as 0xff, which is NaN. With -fsanitize=thread
// each CUDA thread is a thread to the sanitizer, with -fsanitize=address shared and global memory have bounds. What need
// not be compiled with each kernel is in ../library.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "types.h"

// What stands in the emulation's own functions is nobody's access to a sanitizer.
#if defined(__SANITIZE_THREAD__)
#define CUH_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#elif defined(__SANITIZE_ADDRESS__)
#define CUH_UNSEEN __attribute__((no_sanitize("address"), noinline))
#else
#define CUH_UNSEEN
#endif

namespace cuh {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr size_t stack_bytes = 256 << 10;
#else
inline constexpr size_t stack_bytes = 128 << 10;
#endif
inline constexpr unsigned max_threads = 1024, warp_size = 32;
inline constexpr size_t plain_shared_bytes = 48 << 10, largest_shared_bytes = 227 << 10;

enum State { ready, at_barrier, at_warp_operation, ended };

// What a barrier of the block is given: a vote of all threads.
enum class Vote { none, count, all, any };

struct Thread {
  void* stack_pointer;
  char* stack;
  void* tsan_fiber;
  uint3 index;
  State state;
  unsigned lane, warp, mask;
  int line, operation, predicate;
  unsigned barriers, warp_barriers;
  uint64_t given, taken;
  int source;
  unsigned long spins;
};

struct Threads {
  Thread* first = nullptr;
  size_t count = 0;
  Thread* begin() const { return first; }
  Thread* end() const { return first + count; }
  size_t size() const { return count; }
  Thread& operator[](size_t i) const { return first[i]; }
};

// A variable of shared memory, with an address of its own for as long as the grid runs.
struct SharedVariable {
  int id;
  size_t bytes;
  char* place;
  bool begun;
};

struct Engine {
  std::vector<Thread> every_thread;  // as many as the largest block has
  Threads threads;                   // those of the block that runs
  std::vector<unsigned> waiting;     // of each warp: the lanes that wait
  std::vector<unsigned> order;
  SharedVariable shared[128];  // of the running grid
  unsigned shared_count = 0;
  size_t shared_used = 0;
  char* shared_memory = nullptr;
  Thread* current = nullptr;
  void* main_stack_pointer = nullptr;
  void* main_fiber = nullptr;
  const void* main_stack = nullptr;
  size_t main_stack_bytes = 0;
  uint3 block_index{};
  dim3 grid, block;
  char* dynamic_shared = nullptr;
  size_t dynamic_bytes = 0;
  unsigned alive = 0, arrived = 0;
  int vote = 0;
  char* stacks = nullptr;
  size_t stacks_made = 0;
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;
  std::string kernel, fault;
  unsigned long clock = 0;
  char barrier_tags[2], warp_tags[2 * 32], start_tag, end_tag;
  std::recursive_mutex busy;
  unsigned shuffle_seed = 0;
  char order_kind = 'f';  // forward, backward or random
  size_t shared_limit = plain_shared_bytes;
};

extern Engine engine;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void give_way();
std::string named(const uint3& index);

// Ends the grid from a CUDA thread: the launch raises it.
[[noreturn]] void fail(const std::string& text);

int sync_block(int line, Vote vote = Vote::none, int predicate = 0);

CUH_UNSEEN inline unsigned lanes_of_warp(unsigned warp) {
  const unsigned left = static_cast<unsigned>(engine.threads.size()) - warp * warp_size;
  return left >= warp_size ? ~0u : (1u << left) - 1;
}

// A thread that waits for another one in a loop lets others run now and then.
CUH_UNSEEN inline void spin() {
  Thread* me = engine.current;
  if (me && (++me->spins & 63) == 0) give_way();
}

// The place of a variable of shared memory in this block. The first thread that comes to it finds what is undefined.
void* shared_place(int id, size_t bytes);

template <class T, int id>
T& shared() {
  return *static_cast<T*>(shared_place(id, sizeof(T)));
}

CUH_UNSEEN inline void* dynamic_shared() {
  if (!engine.current) throw Fault("shared memory outside of a kernel");
  return engine.dynamic_shared;
}

// `extern __shared__ T name[]` at file scope: the name stands for whatever the running block has.
template <class T>
struct DynamicShared {
  operator T*() const { return static_cast<T*>(dynamic_shared()); }
  template <class I>
  T& operator[](I index) const { return static_cast<T*>(dynamic_shared())[index]; }
};

// How blocks and threads follow each other: `forward`, `backward` or `random:SEED`.
void set_order(const std::string& order);

// Raises `Fault` where a GPU would refuse the launch.
void check_launch(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t limit);

// Runs `entry(argument)` in each thread of a grid. Raises `Fault` where a GPU run would hang or be undefined.
void run_grid(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t shared_limit,
              void (*entry)(void*), void* argument);

template <class Body>
void run_body(void* body) {
  (*static_cast<Body*>(body))();
}

CUH_UNSEEN inline const uint3& thread_index() { return engine.current->index; }
CUH_UNSEEN inline const uint3& block_index() { return engine.block_index; }
CUH_UNSEEN inline const dim3& block_size() { return engine.block; }
CUH_UNSEEN inline const dim3& grid_size() { return engine.grid; }
CUH_UNSEEN inline unsigned lane_index() { return engine.current->lane; }
CUH_UNSEEN inline long long ticks() { return static_cast<long long>(engine.clock += 100); }

}  // namespace cuh

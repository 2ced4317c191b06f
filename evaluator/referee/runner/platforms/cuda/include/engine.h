// CUDA C++ on a host's processor, to see whether a kernel is right; it says nothing about its speed.
//
// One block at a time; a CUDA thread is a fiber that gives way at barriers and warp operations alone. Nothing a kernel
// reads before it is written holds zeros by chance: shared memory starts as 0xff, which is NaN. With -fsanitize=thread
// each CUDA thread is a thread to the sanitizer, with -fsanitize=address shared and global memory have bounds.
#pragma once
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "types.h"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define CUH_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#elif defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}
#define CUH_UNSEEN __attribute__((no_sanitize("address"), noinline))
#else
#define CUH_UNSEEN
#endif

// Saves what a call must preserve on this stack and goes on with another one.
extern "C" void cuh_switch_stacks(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.weak cuh_switch_stacks
.type cuh_switch_stacks,@function
cuh_switch_stacks:
 pushq %rbp
 pushq %rbx
 pushq %r12
 pushq %r13
 pushq %r14
 pushq %r15
 movq %rsp,(%rdi)
 movq %rsi,%rsp
 popq %r15
 popq %r14
 popq %r13
 popq %r12
 popq %rbx
 popq %rbp
 ret
.size cuh_switch_stacks,.-cuh_switch_stacks
)");
#else
#error "the emulation of CUDA threads is written for x86-64"
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

// Orders by a seed (Fisher and Yates; numbers by SplitMix64). Headers of the standard library that have both take longer
// to compile than a kernel.
struct Shuffle {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  template <class T>
  void operator()(std::vector<T>& values) {
    for (size_t left = values.size(); left > 1; left--) std::swap(values[left - 1], values[next() % left]);
  }
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

inline Engine engine;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

CUH_UNSEEN inline void give_way() {
  Thread* me = engine.current;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(engine.main_fiber, 1);
#elif defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, engine.main_stack, engine.main_stack_bytes);
#endif
  cuh_switch_stacks(&me->stack_pointer, engine.main_stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, &engine.main_stack, &engine.main_stack_bytes);
#endif
}

CUH_UNSEEN inline std::string named(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

// Ends the grid from a CUDA thread: the launch raises it.
[[noreturn]] CUH_UNSEEN inline void fail(const std::string& text) {
  if (engine.fault.empty()) engine.fault = text;
  for (;;) give_way();
}

inline const char* operation_name(int operation) {
  switch (operation) {
    case 'b': return "__syncthreads";
    case 'w': return "__syncwarp";
    case 'v': return "a vote";
    case 'm': return "__match_any_sync";
    case 'r': return "a warp reduction";
    default: return "a shuffle";
  }
}

// Who waits where: at most a few groups of threads, each by the first of them.
CUH_UNSEEN inline std::string who_waits() {
  struct Group {
    State state;
    int operation, line;
    unsigned mask, count;
    uint3 first;
  };
  std::vector<Group> groups;
  unsigned ended_threads = 0;
  for (Thread& each : engine.threads) {
    if (each.state == ended) ended_threads++;
    if (each.state != at_barrier && each.state != at_warp_operation) continue;
    bool found = false;
    for (Group& group : groups)
      if (group.state == each.state && group.operation == each.operation && group.line == each.line &&
          (each.state == at_barrier || group.mask == each.mask)) {
        group.count++;
        found = true;
        break;
      }
    if (!found) groups.push_back({each.state, each.operation, each.line, each.mask, 1, each.index});
  }
  std::string text;
  for (size_t i = 0; i < groups.size() && i < 4; i++) {
    const Group& group = groups[i];
    text += i ? "; " : ": ";
    text += std::to_string(group.count) + (group.count == 1 ? " thread waits at " : " threads wait at ");
    text += std::string(operation_name(group.operation)) + ", line " + std::to_string(group.line);
    if (group.state == at_warp_operation) {
      char mask[16];
      std::snprintf(mask, sizeof mask, "%08x", group.mask);
      text += std::string(" (mask 0x") + mask + ")";
    }
    text += ", first thread " + named(group.first);
  }
  if (ended_threads) text += "; " + std::to_string(ended_threads) + " of the block have returned";
  return text;
}

CUH_UNSEEN inline void complete_barrier() {
  int line = -1;
  for (Thread& each : engine.threads) {
    if (each.state != at_barrier) continue;
    if (line >= 0 && each.line != line) {
      engine.fault = "barrier divergence: threads of one block have reached different __syncthreads" + who_waits();
      return;
    }
    line = each.line;
  }
  int count = 0, all = 1;
  for (Thread& each : engine.threads) {
    if (each.state != at_barrier) continue;
    count += each.predicate != 0;
    all &= each.predicate != 0;
    each.state = ready;
  }
  engine.vote = count | (all << 16);
  engine.arrived = 0;
}

CUH_UNSEEN inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &engine.main_stack, &engine.main_stack_bytes);
#endif
  for (;;) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&engine.start_tag);  // blocks come one after another, as they use the same shared memory
#endif
    engine.entry(engine.argument);
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&engine.end_tag);
#endif
    engine.current->state = ended;
    if (--engine.alive && engine.arrived == engine.alive) complete_barrier();
    give_way();
  }
}

CUH_UNSEEN inline int sync_block(int line, Vote vote = Vote::none, int predicate = 0) {
  Thread* me = engine.current;
  if (!me) throw Fault("__syncthreads outside of a kernel");
  me->line = line;
  me->operation = 'b';
  me->predicate = predicate;
#if defined(__SANITIZE_THREAD__)
  char* tag = &engine.barrier_tags[me->barriers++ & 1];  // a thread may be one barrier ahead of another, never two
  __tsan_release(tag);
#endif
  me->state = at_barrier;
  if (++engine.arrived == engine.alive) complete_barrier();
  // Even the last to arrive gives way, so that the order of threads is the same in every part of a kernel.
  give_way();
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(tag);
#endif
  switch (vote) {
    case Vote::count: return engine.vote & 0xffff;
    case Vote::all: return engine.vote >> 16;
    case Vote::any: return (engine.vote & 0xffff) != 0;
    default: return 0;
  }
}

CUH_UNSEEN inline unsigned lanes_of_warp(unsigned warp) {
  const unsigned left = static_cast<unsigned>(engine.threads.size()) - warp * warp_size;
  return left >= warp_size ? ~0u : (1u << left) - 1;
}

// A thread that waits for another one in a loop lets others run now and then.
CUH_UNSEEN inline void spin() {
  Thread* me = engine.current;
  if (me && (++me->spins & 63) == 0) give_way();
}

// Fills with NaN by writes that no sanitizer takes for the running thread's.
CUH_UNSEEN inline void undefine(char* place, size_t bytes) {
  for (volatile char* each = place; each < place + bytes; each++) *each = char(0xff);
}

// The place of a variable of shared memory in this block. The first thread that comes to it finds what is undefined.
CUH_UNSEEN inline void* shared_place(int id, size_t bytes) {
  Engine& e = engine;
  if (!e.current) throw Fault("shared memory outside of a kernel");
  size_t all = bytes;
  for (unsigned i = 0; i < e.shared_count; i++) {
    SharedVariable& each = e.shared[i];
    if (each.id == id && each.bytes == bytes) {
      if (!each.begun) {
        undefine(each.place, bytes);
        each.begun = true;
      }
      return each.place;
    }
    all += each.bytes;
  }
  if (all > plain_shared_bytes)
    fail("a block's static shared memory takes " + std::to_string(all) + " bytes, more than 48 KiB");
  if (all + e.dynamic_bytes > largest_shared_bytes)
    fail("a block's shared memory takes " + std::to_string(all + e.dynamic_bytes) + " bytes, more than 227 KiB");
  if (e.shared_count == 128) fail("a kernel has more than 128 variables of shared memory");
#if defined(__SANITIZE_ADDRESS__)
  void* place = nullptr;  // exactly as long as the variable, so that what lies behind it is out of bounds
  if (posix_memalign(&place, 128, bytes)) std::abort();
#else
  // From memory that was there before the threads were: to the thread sanitizer, who allocates has written.
  void* place = e.shared_memory + e.shared_used;
  e.shared_used += (bytes + 127) / 128 * 128;
#endif
  undefine(static_cast<char*>(place), bytes);
  e.shared[e.shared_count++] = {id, bytes, static_cast<char*>(place), true};
  return place;
}

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

CUH_UNSEEN inline void run_block(bool first_block) {
  Engine& e = engine;
  const unsigned count = static_cast<unsigned>(e.threads.size());
  e.alive = count;
  e.arrived = 0;
  std::fill(e.waiting.begin(), e.waiting.end(), 0u);
  for (unsigned i = 0; i < e.shared_count; i++) e.shared[i].begun = false;
  undefine(e.dynamic_shared, e.dynamic_bytes);
  for (unsigned i = 0; i < count; i++) {
    Thread& each = e.threads[i];
    each.state = ready;
    each.index = {i % e.block.x, i / e.block.x % e.block.y, i / e.block.x / e.block.y};
    each.lane = i % warp_size;
    each.warp = i / warp_size;
    each.barriers = each.warp_barriers = 0;
    each.spins = 0;
    if (first_block) {
      void** top = reinterpret_cast<void**>(each.stack + stack_bytes - 64);
      *--top = nullptr;
      *--top = reinterpret_cast<void*>(&fiber_main);
      each.stack_pointer = top - 6;
    }
  }
#if defined(__SANITIZE_THREAD__)
  e.main_fiber = __tsan_get_current_fiber();
  __tsan_release(&e.start_tag);
#endif
  while (e.alive) {
    bool any = false;
    for (unsigned i : e.order) {
      Thread& each = e.threads[i];
      if (each.state != ready) continue;
      any = true;
      e.current = &each;
#if defined(__SANITIZE_THREAD__)
      __tsan_switch_to_fiber(each.tsan_fiber, 1);
#elif defined(__SANITIZE_ADDRESS__)
      void* fake = nullptr;
      __sanitizer_start_switch_fiber(&fake, each.stack, stack_bytes);
#endif
      cuh_switch_stacks(&e.main_stack_pointer, each.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
      if (!e.fault.empty()) break;
    }
    if (e.fault.empty() && !any && e.alive) e.fault = "deadlock: no thread of the block can go on" + who_waits();
    if (!e.fault.empty()) break;
  }
  e.current = nullptr;
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&e.end_tag);
#endif
}

// How blocks and threads follow each other: `forward`, `backward` or `random:SEED`.
inline void set_order(const std::string& order) {
  engine.order_kind = order.empty() ? 'f' : order[0];
  const size_t colon = order.find(':');
  engine.shuffle_seed = colon == std::string::npos ? 0 : std::strtoul(order.c_str() + colon + 1, nullptr, 10);
}

inline void check_launch(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t limit) {
  const auto told = [](dim3 each) { return named({each.x, each.y, each.z}); };
  const size_t threads = size_t(block.x) * block.y * block.z;
  std::string wrong;
  if (!threads || !grid.x || !grid.y || !grid.z) wrong = "a dimension is 0";
  else if (threads > max_threads || block.x > 1024 || block.y > 1024 || block.z > 64)
    wrong = "a block has " + std::to_string(threads) + " threads; 1024 is the most (64 along z)";
  else if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) wrong = "the grid is larger than a GPU takes";
  else if (dynamic_bytes > limit)
    wrong = std::to_string(dynamic_bytes) + " bytes of dynamic shared memory; without cudaFuncSetAttribute(" +
            "cudaFuncAttributeMaxDynamicSharedMemorySize) " + std::to_string(limit) + " is the most";
  if (!wrong.empty())
    throw Fault("the launch of " + kernel + " is not valid on a GPU: grid " + told(grid) + ", block " + told(block) +
                ": " + wrong);
}

// Runs a grid. Raises `Fault` where a GPU run would hang or be undefined.
template <class Body>
void run_grid(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t shared_limit, Body body) {
  check_launch(kernel, grid, block, dynamic_bytes, shared_limit);
  std::lock_guard<std::recursive_mutex> alone(engine.busy);
  Engine& e = engine;
  if (e.current) throw Fault("a kernel launches a kernel, which is not emulated");
  const unsigned count = block.x * block.y * block.z;
  if (e.stacks_made < count) {
    // The stacks of the largest block at once: they are only reserved until they are used.
    void* made = mmap(nullptr, max_threads * stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) throw Fault("no memory for the stacks of CUDA threads");
    e.stacks = static_cast<char*>(made);
    e.stacks_made = max_threads;
    e.every_thread.resize(max_threads);
    for (unsigned i = 0; i < max_threads; i++) e.every_thread[i].stack = e.stacks + i * stack_bytes;
  }
  e.threads = {e.every_thread.data(), count};
#if defined(__SANITIZE_THREAD__)
  for (Thread& each : e.threads)
    if (!each.tsan_fiber) each.tsan_fiber = __tsan_create_fiber(0);
#endif
  e.kernel = kernel;
  e.fault.clear();
  e.grid = grid;
  e.block = block;
  e.entry = [](void* made) { (*static_cast<Body*>(made))(); };
  e.argument = &body;
  e.waiting.assign((count + warp_size - 1) / warp_size, 0);
  e.shared_count = 0;
  e.shared_used = 0;
  if (!e.shared_memory) e.shared_memory = static_cast<char*>(std::aligned_alloc(128, plain_shared_bytes + 128 * 128));
  e.dynamic_bytes = dynamic_bytes;
  void* dynamic = nullptr;
  if (posix_memalign(&dynamic, 1024, dynamic_bytes ? dynamic_bytes : 1)) throw Fault("no memory for shared memory");
  e.dynamic_shared = static_cast<char*>(dynamic);
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  std::vector<uint32_t> shuffled;
  Shuffle shuffle{e.shuffle_seed};
  if (e.order_kind == 'r' && blocks < (1u << 24)) {
    shuffled.resize(blocks);
    for (uint32_t i = 0; i < blocks; i++) shuffled[i] = i;
    shuffle(shuffled);
  }
  e.order.resize(count);
  for (unsigned i = 0; i < count; i++) e.order[i] = e.order_kind == 'b' ? count - 1 - i : i;
  for (uint64_t i = 0; i < blocks && e.fault.empty(); i++) {
    const uint64_t number = !shuffled.empty() ? shuffled[i] : e.order_kind == 'b' ? blocks - 1 - i : i;
    e.block_index = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)};
    if (e.order_kind == 'r') shuffle(e.order);
    run_block(i == 0);
  }
#if defined(__SANITIZE_ADDRESS__)
  for (unsigned i = 0; i < e.shared_count; i++) std::free(e.shared[i].place);
#endif
  std::free(e.dynamic_shared);
  e.dynamic_shared = nullptr;
  if (!e.fault.empty())
    throw Fault(kernel + ", block " + named(e.block_index) + ": " + e.fault);
}

CUH_UNSEEN inline const uint3& thread_index() { return engine.current->index; }
CUH_UNSEEN inline const uint3& block_index() { return engine.block_index; }
CUH_UNSEEN inline const dim3& block_size() { return engine.block; }
CUH_UNSEEN inline const dim3& grid_size() { return engine.grid; }
CUH_UNSEEN inline unsigned lane_index() { return engine.current->lane; }
CUH_UNSEEN inline long long ticks() { return static_cast<long long>(engine.clock += 100); }

}  // namespace cuh

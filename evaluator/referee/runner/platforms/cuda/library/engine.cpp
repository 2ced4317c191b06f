// How a grid runs: fibers that follow each other, barriers, shared memory, operations of warps.
#include "../include/warp.h"

#include <algorithm>
#include <random>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#elif defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}
#endif

// Saves what a call must preserve on this stack and goes on with another one.
extern "C" void cuh_switch_stacks(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl cuh_switch_stacks
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

Engine engine;

CUH_UNSEEN void give_way() {
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

CUH_UNSEEN std::string named(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

// Ends the grid from a CUDA thread: the launch raises it.
[[noreturn]] CUH_UNSEEN void fail(const std::string& text) {
  if (engine.fault.empty()) engine.fault = text;
  for (;;) give_way();
}

const char* operation_name(int operation) {
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
CUH_UNSEEN std::string who_waits() {
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

CUH_UNSEEN void complete_barrier() {
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

CUH_UNSEEN void fiber_main() {
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

CUH_UNSEEN int sync_block(int line, Vote vote, int predicate) {
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

// Fills with NaN by writes that no sanitizer takes for the running thread's.
CUH_UNSEEN void undefine(char* place, size_t bytes) {
  for (volatile char* each = place; each < place + bytes; each++) *each = char(0xff);
}

// The place of a variable of shared memory in this block. The first thread that comes to it finds what is undefined.
CUH_UNSEEN void* shared_place(int id, size_t bytes) {
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

CUH_UNSEEN void run_block(bool first_block) {
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
void set_order(const std::string& order) {
  engine.order_kind = order.empty() ? 'f' : order[0];
  const size_t colon = order.find(':');
  engine.shuffle_seed = colon == std::string::npos ? 0 : std::strtoul(order.c_str() + colon + 1, nullptr, 10);
}

void check_launch(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t limit) {
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

void run_grid(const std::string& kernel, dim3 grid, dim3 block, size_t dynamic_bytes, size_t shared_limit,
              void (*entry)(void*), void* argument) {
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
  e.entry = entry;
  e.argument = argument;
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
  std::mt19937_64 numbers(e.shuffle_seed);
  if (e.order_kind == 'r' && blocks < (1u << 24)) {
    shuffled.resize(blocks);
    for (uint32_t i = 0; i < blocks; i++) shuffled[i] = i;
    std::shuffle(shuffled.begin(), shuffled.end(), numbers);
  }
  e.order.resize(count);
  for (unsigned i = 0; i < count; i++) e.order[i] = e.order_kind == 'b' ? count - 1 - i : i;
  for (uint64_t i = 0; i < blocks && e.fault.empty(); i++) {
    const uint64_t number = !shuffled.empty() ? shuffled[i] : e.order_kind == 'b' ? blocks - 1 - i : i;
    e.block_index = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)};
    if (e.order_kind == 'r') std::shuffle(e.order.begin(), e.order.end(), numbers);
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

CUH_UNSEEN uint64_t warp_operation(int operation, int line, unsigned mask, uint64_t given, int source, Deal deal,
                                   void* with) {
  Thread* me = engine.current;
  if (!me) throw Fault("a warp operation outside of a kernel");
  me->line = line;
  me->operation = operation;
  me->mask = mask;
  me->given = given;
  me->source = source;
  if (!(mask >> me->lane & 1)) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    fail(std::string(operation_name(operation)) + " in line " + std::to_string(line) + ": thread " +
         named(me->index) + " (lane " + std::to_string(me->lane) + ") calls it with mask " + text +
         ", which leaves itself out");
  }
  unsigned& waiting = engine.waiting[me->warp];
  waiting |= 1u << me->lane;
  me->state = at_warp_operation;
  const unsigned needed = mask & lanes_of_warp(me->warp);
  Thread* lanes = &engine.threads[me->warp * warp_size];
  if ((waiting & needed) == needed) {
    for (unsigned lane = 0; lane < warp_size; lane++)
      if (needed >> lane & 1) {
        Thread& other = lanes[lane];
        if (other.line != line || other.operation != operation || other.mask != mask) {
          fail("warp divergence: lanes of one warp wait at different warp operations" + who_waits());
        }
      }
    deal(lanes, needed, with);
    waiting &= ~needed;
    for (unsigned lane = 0; lane < warp_size; lane++)
      if (needed >> lane & 1) lanes[lane].state = ready;
  }
  give_way();
  return me->taken;
}

CUH_UNSEEN void sync_warp(int line, unsigned mask) {
#if defined(__SANITIZE_THREAD__)
  Thread* me = engine.current;
  char* tag = &engine.warp_tags[(me->warp & 31) * 2 + (me->warp_barriers++ & 1)];
  __tsan_release(tag);  // __syncwarp orders memory; shuffles and votes do not
#endif
  warp_operation('w', line, mask, 0, 0, [](Thread*, unsigned, void*) CUH_UNSEEN {}, nullptr);
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(tag);
#endif
}

CUH_UNSEEN uint64_t shuffle_bits(char how, int line, unsigned mask, uint64_t given, int amount, int width) {
  if (width < 1 || width > int(warp_size) || (width & (width - 1)))
    fail("a shuffle in line " + std::to_string(line) + " has the width " + std::to_string(width) +
         ", which is no power of two up to 32");
  const int lane = engine.current->lane, inside = lane & (width - 1), first = lane - inside;
  int source = lane;
  if (how == 'i') source = first + (amount & (width - 1));
  if (how == 'x' && (inside ^ amount) < width) source = first + (inside ^ amount);
  if (how == 'd' && inside + amount < width) source = lane + amount;
  if (how == 'u' && inside >= amount) source = lane - amount;
  return warp_operation(how, line, mask, given, source, [](Thread* lanes, unsigned needed, void*) CUH_UNSEEN {
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) {
        const int from = lanes[i].source;
        // What a lane gives that takes no part is not defined: NaN, so that whoever uses it is seen.
        lanes[i].taken = needed >> from & 1 ? lanes[from].given : ~uint64_t{0};
      }
  }, nullptr);
}

CUH_UNSEEN unsigned ballot(int line, unsigned mask, int predicate) {
  return static_cast<unsigned>(
      warp_operation('v', line, mask, predicate != 0, 0, [](Thread* lanes, unsigned needed, void*) CUH_UNSEEN {
        unsigned votes = 0;
        for (unsigned i = 0; i < warp_size; i++)
          if (needed >> i & 1 && lanes[i].given) votes |= 1u << i;
        for (unsigned i = 0; i < warp_size; i++)
          if (needed >> i & 1) lanes[i].taken = votes;
      }, nullptr));
}

CUH_UNSEEN unsigned match_bits(int line, unsigned mask, uint64_t given) {
  return static_cast<unsigned>(
      warp_operation('m', line, mask, given, 0, [](Thread* lanes, unsigned needed, void*) CUH_UNSEEN {
        for (unsigned i = 0; i < warp_size; i++) {
          if (!(needed >> i & 1)) continue;
          unsigned same = 0;
          for (unsigned j = 0; j < warp_size; j++)
            if (needed >> j & 1 && lanes[j].given == lanes[i].given) same |= 1u << j;
          lanes[i].taken = same;
        }
      }, nullptr));
}

}  // namespace cuh

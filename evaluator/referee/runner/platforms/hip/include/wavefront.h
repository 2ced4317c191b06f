// Operations of the lanes of a wavefront as gfx9 has them: 64 lanes, no masks. The lanes that take part are those that
// have come to the operation when every other lane of the wavefront waits at a barrier or has ended.
//
// It is read behind the emulation's own headers (runtime.h), which may be precompiled and so are not named here.
#pragma once
namespace cuh {

inline constexpr unsigned wavefront_size = 64;
enum WaveState : unsigned { wave_runs, wave_waits, wave_released };  // in `Thread::warp_barriers`, 0 when a block begins

struct Wavefront {
  Thread* lanes;
  unsigned count, lane;
};

CUH_UNSEEN inline Wavefront own_wavefront() {
  const unsigned number = static_cast<unsigned>(engine.current - engine.threads.first);
  const unsigned first = number / wavefront_size * wavefront_size;
  const unsigned left = static_cast<unsigned>(engine.threads.size()) - first;
  return {engine.threads.first + first, left < wavefront_size ? left : wavefront_size, number - first};
}

CUH_UNSEEN inline const char* wave_operation_name(int operation) {
  return operation == 'v' ? "a vote" : operation == 'w' ? "__syncwarp" : "a shuffle";
}

// The lanes that take part, once no lane of the wavefront runs; 0 until then.
CUH_UNSEEN inline uint64_t lanes_that_came(const Wavefront& wave) {
  uint64_t came = 0;
  const Thread* first = nullptr;
  for (unsigned i = 0; i < wave.count; i++) {
    const Thread& each = wave.lanes[i];
    if (each.state == ended || each.state == at_barrier) continue;
    if (each.warp_barriers != wave_waits) return 0;
    came |= uint64_t(1) << i;
    if (!first) first = &each;
  }
  for (unsigned i = 0; i < wave.count; i++) {
    const Thread& each = wave.lanes[i];
    if ((came >> i & 1) && (each.line != first->line || each.operation != first->operation))
      fail("wavefront divergence: thread " + named(first->index) + " waits at " + wave_operation_name(first->operation) +
           ", line " + std::to_string(first->line) + ", and thread " + named(each.index) + " of the same wavefront at " +
           wave_operation_name(each.operation) + ", line " + std::to_string(each.line));
  }
  return came;
}

using WaveDeal = void (*)(Thread* lanes, uint64_t came);

CUH_UNSEEN inline uint64_t wave_operation(int operation, int line, uint64_t given, int source, WaveDeal deal) {
  Thread* me = engine.current;
  if (!me) throw Fault("a wavefront operation outside of a kernel");
  me->operation = operation;
  me->line = line;
  me->given = given;
  me->source = source;
  me->warp_barriers = wave_waits;
  const Wavefront wave = own_wavefront();
  while (me->warp_barriers == wave_waits) {
    if (const uint64_t came = lanes_that_came(wave)) {
      deal(wave.lanes, came);
      for (unsigned i = 0; i < wave.count; i++)
        if (came >> i & 1) wave.lanes[i].warp_barriers = wave_released;
    }
    give_way();
  }
  me->warp_barriers = wave_runs;
  return me->taken;
}

CUH_UNSEEN inline uint64_t wave_shuffle_bits(char how, int line, uint64_t given, int amount, int width) {
  if (width < 1 || width > int(wavefront_size) || (width & (width - 1)))
    fail("a shuffle in line " + std::to_string(line) + " has the width " + std::to_string(width) +
         ", which is no power of two up to 64");
  if (!engine.current) throw Fault("a shuffle outside of a kernel");
  const int lane = int(own_wavefront().lane), first = lane & ~(width - 1);
  int source = lane;
  if (how == 'i') source = first + (amount & (width - 1));
  if (how == 'x' && (lane ^ amount) < first + width) source = lane ^ amount;
  if (how == 'd' && lane - first + amount < width) source = lane + amount;
  if (how == 'u' && lane - amount >= first) source = lane - amount;
  return wave_operation(how, line, given, source, [](Thread* lanes, uint64_t came) CUH_UNSEEN {
    for (unsigned i = 0; i < wavefront_size; i++)
      if (came >> i & 1) {
        const unsigned from = unsigned(lanes[i].source) % wavefront_size;
        // What a lane holds that takes no part is not defined: NaN, so that whoever uses it is seen.
        lanes[i].taken = came >> from & 1 ? lanes[from].given : ~uint64_t{0};
      }
  });
}

template <class T>
CUH_UNSEEN T wave_shuffle(char how, int line, T value, int amount, int width = wavefront_size) {
  return from_bits<T>(wave_shuffle_bits(how, line, bits_of(value), amount, width));
}

CUH_UNSEEN inline unsigned long long wave_ballot(int line, int predicate) {
  return wave_operation('v', line, predicate != 0, 0, [](Thread* lanes, uint64_t came) CUH_UNSEEN {
    uint64_t votes = 0;
    for (unsigned i = 0; i < wavefront_size; i++)
      if (came >> i & 1 && lanes[i].given) votes |= uint64_t(1) << i;
    for (unsigned i = 0; i < wavefront_size; i++)
      if (came >> i & 1) lanes[i].taken = votes;
  });
}

// A mask of lanes, of operations that take one.
template <class Mask>
CUH_UNSEEN void see_mask(int line, Mask mask) {
  static_assert(sizeof(Mask) == 8, "a mask of the lanes of a wavefront has 64 bits");
  const unsigned lane = own_wavefront().lane;
  if (!(static_cast<uint64_t>(mask) >> lane & 1))
    fail("an operation of a wavefront in line " + std::to_string(line) + ": thread " + named(engine.current->index) +
         " (lane " + std::to_string(lane) + ") calls it with a mask that leaves itself out");
}

}  // namespace cuh

#undef __shfl_sync
#undef __shfl_xor_sync
#undef __shfl_down_sync
#undef __shfl_up_sync
#undef __ballot_sync
#undef __any_sync
#undef __all_sync
#undef __syncwarp
#undef __match_any_sync
#undef __reduce_add_sync
#undef __reduce_max_sync
#undef __reduce_min_sync
#undef __reduce_and_sync
#undef __reduce_or_sync
#undef __reduce_xor_sync

#define __shfl(...) cuh::wave_shuffle('i', __LINE__, __VA_ARGS__)
#define __shfl_xor(...) cuh::wave_shuffle('x', __LINE__, __VA_ARGS__)
#define __shfl_down(...) cuh::wave_shuffle('d', __LINE__, __VA_ARGS__)
#define __shfl_up(...) cuh::wave_shuffle('u', __LINE__, __VA_ARGS__)
#define __ballot(p) cuh::wave_ballot(__LINE__, (p) != 0)
#define __any(p) (cuh::wave_ballot(__LINE__, (p) != 0) != 0)
#define __all(p) (cuh::wave_ballot(__LINE__, !(p)) == 0)
#define __shfl_sync(mask, ...) (cuh::see_mask(__LINE__, mask), __shfl(__VA_ARGS__))
#define __shfl_xor_sync(mask, ...) (cuh::see_mask(__LINE__, mask), __shfl_xor(__VA_ARGS__))
#define __shfl_down_sync(mask, ...) (cuh::see_mask(__LINE__, mask), __shfl_down(__VA_ARGS__))
#define __shfl_up_sync(mask, ...) (cuh::see_mask(__LINE__, mask), __shfl_up(__VA_ARGS__))
#define __ballot_sync(mask, p) (cuh::see_mask(__LINE__, mask), __ballot(p))
#define __any_sync(mask, p) (cuh::see_mask(__LINE__, mask), __any(p))
#define __all_sync(mask, p) (cuh::see_mask(__LINE__, mask), __all(p))
#define __activemask() cuh::wave_ballot(__LINE__, 1)
#define __lane_id() (cuh::own_wavefront().lane)
// CUDA's own `warpSize` is 32, and stands in the precompiled headers.
#define warpSize cuh_warpSize
inline constexpr int cuh_warpSize = cuh::wavefront_size;

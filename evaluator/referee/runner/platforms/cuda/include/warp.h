// Operations of the lanes of a warp: shuffles, votes, reductions, and their barrier.
#pragma once
#include "engine.h"

namespace cuh {

// One operation of the lanes of a mask; the last to arrive deals the results out, so nobody can run ahead.
template <class Deal>
CUH_UNSEEN uint64_t warp_operation(int operation, int line, unsigned mask, uint64_t given, int source, Deal deal) {
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
    deal(lanes, needed);
    waiting &= ~needed;
    for (unsigned lane = 0; lane < warp_size; lane++)
      if (needed >> lane & 1) lanes[lane].state = ready;
  }
  give_way();
  return me->taken;
}

CUH_UNSEEN inline void sync_warp(int line, unsigned mask = ~0u) {
#if defined(__SANITIZE_THREAD__)
  Thread* me = engine.current;
  char* tag = &engine.warp_tags[(me->warp & 31) * 2 + (me->warp_barriers++ & 1)];
  __tsan_release(tag);  // __syncwarp orders memory; shuffles and votes do not
#endif
  warp_operation('w', line, mask, 0, 0, [](Thread*, unsigned) CUH_UNSEEN {});
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(tag);
#endif
}

template <class T>
CUH_UNSEEN T shuffle(char how, int line, unsigned mask, T value, int amount, int width = warp_size) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  if (width < 1 || width > int(warp_size) || (width & (width - 1)))
    fail("a shuffle in line " + std::to_string(line) + " has the width " + std::to_string(width) +
         ", which is no power of two up to 32");
  const int lane = engine.current->lane, inside = lane & (width - 1), first = lane - inside;
  int source = lane;
  if (how == 'i') source = first + (amount & (width - 1));
  if (how == 'x' && (inside ^ amount) < width) source = first + (inside ^ amount);
  if (how == 'd' && inside + amount < width) source = lane + amount;
  if (how == 'u' && inside >= amount) source = lane - amount;
  uint64_t given = 0;
  std::memcpy(&given, &value, sizeof value);
  const uint64_t taken = warp_operation(how, line, mask, given, source, [](Thread* lanes, unsigned needed) CUH_UNSEEN {
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) {
        const int from = lanes[i].source;
        // What a lane gives that takes no part is not defined: NaN, so that whoever uses it is seen.
        lanes[i].taken = needed >> from & 1 ? lanes[from].given : ~uint64_t{0};
      }
  });
  T result;
  std::memcpy(&result, &taken, sizeof result);
  return result;
}

CUH_UNSEEN inline unsigned ballot(int line, unsigned mask, int predicate) {
  return static_cast<unsigned>(
      warp_operation('v', line, mask, predicate != 0, 0, [](Thread* lanes, unsigned needed) CUH_UNSEEN {
        unsigned votes = 0;
        for (unsigned i = 0; i < warp_size; i++)
          if (needed >> i & 1 && lanes[i].given) votes |= 1u << i;
        for (unsigned i = 0; i < warp_size; i++)
          if (needed >> i & 1) lanes[i].taken = votes;
      }));
}

template <class T>
CUH_UNSEEN unsigned match_any(int line, unsigned mask, T value) {
  uint64_t given = 0;
  std::memcpy(&given, &value, sizeof value);
  return static_cast<unsigned>(warp_operation('m', line, mask, given, 0, [](Thread* lanes, unsigned needed) CUH_UNSEEN {
    for (unsigned i = 0; i < warp_size; i++) {
      if (!(needed >> i & 1)) continue;
      unsigned same = 0;
      for (unsigned j = 0; j < warp_size; j++)
        if (needed >> j & 1 && lanes[j].given == lanes[i].given) same |= 1u << j;
      lanes[i].taken = same;
    }
  }));
}

template <class T, class Combine>
CUH_UNSEEN T reduce_warp(int line, unsigned mask, T value, Combine combine) {
  uint64_t given = 0;
  std::memcpy(&given, &value, sizeof value);
  const uint64_t taken = warp_operation('r', line, mask, given, 0, [&](Thread* lanes, unsigned needed) CUH_UNSEEN {
    bool first = true;
    T sum{};
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) {
        T each;
        std::memcpy(&each, &lanes[i].given, sizeof each);
        sum = first ? each : combine(sum, each);
        first = false;
      }
    uint64_t whole = 0;
    std::memcpy(&whole, &sum, sizeof sum);
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) lanes[i].taken = whole;
  });
  T result;
  std::memcpy(&result, &taken, sizeof result);
  return result;
}

}  // namespace cuh

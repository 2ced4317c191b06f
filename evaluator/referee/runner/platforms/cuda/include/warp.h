// Operations of the lanes of a warp: shuffles, votes, reductions, and their barrier.
#pragma once
#include "engine.h"

namespace cuh {

// One operation of the lanes of a mask; the last to arrive deals the results out, so nobody can run ahead.
using Deal = void (*)(Thread* lanes, unsigned needed, void* with);
uint64_t warp_operation(int operation, int line, unsigned mask, uint64_t given, int source, Deal deal, void* with);

void sync_warp(int line, unsigned mask = ~0u);
uint64_t shuffle_bits(char how, int line, unsigned mask, uint64_t given, int amount, int width);
unsigned ballot(int line, unsigned mask, int predicate);
unsigned match_bits(int line, unsigned mask, uint64_t given);

template <class T>
CUH_UNSEEN uint64_t bits_of(const T& value) {
  static_assert(sizeof(T) <= 8, "warp operations move at most 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
CUH_UNSEEN T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
CUH_UNSEEN T shuffle(char how, int line, unsigned mask, T value, int amount, int width = warp_size) {
  return from_bits<T>(shuffle_bits(how, line, mask, bits_of(value), amount, width));
}

template <class T>
CUH_UNSEEN unsigned match_any(int line, unsigned mask, T value) {
  return match_bits(line, mask, bits_of(value));
}

template <class T, class Combine>
CUH_UNSEEN T reduce_warp(int line, unsigned mask, T value, Combine combine) {
  const Deal deal = [](Thread* lanes, unsigned needed, void* with) CUH_UNSEEN {
    bool first = true;
    T sum{};
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) {
        const T each = from_bits<T>(lanes[i].given);
        sum = first ? each : (*static_cast<Combine*>(with))(sum, each);
        first = false;
      }
    for (unsigned i = 0; i < warp_size; i++)
      if (needed >> i & 1) lanes[i].taken = bits_of(sum);
  };
  return from_bits<T>(warp_operation('r', line, mask, bits_of(value), 0, deal, &combine));
}

}  // namespace cuh

// The shortest prefix of an order with a given mass: a weighted radix select, without sorting.
#pragma once

#include <array>
#include <cstdint>

namespace imp::cpu {

// The end of a prefix of the order (greater key first, then lower index): it has all elements before the cut and the
// element at it.
struct Cut {
  std::uint64_t key = 0;
  std::int64_t index = INT64_MAX;

  bool keeps(std::uint64_t other_key, std::int64_t other_index) const noexcept {
    return other_key > key || (other_key == key && other_index <= index);
  }
  // The cut of the shorter prefix.
  static Cut shorter(const Cut& a, const Cut& b) noexcept {
    if (a.key != b.key) return a.key > b.key ? a : b;
    return a.index < b.index ? a : b;
  }
};

// The cut of the shortest prefix of n elements whose mass reaches `needed`, which is at least 1 and at most the total
// mass. Determines the key byte by byte from the top: one pass over n elements per byte.
template <int key_bytes, class KeyAt, class MassAt>
Cut select_prefix(std::int64_t n, KeyAt key_at, MassAt mass_at, std::uint64_t needed) {
  std::uint64_t decided = 0;  // the bytes found so far
  for (int byte = key_bytes - 1; byte >= 0; --byte) {
    const int shift = 8 * byte;
    std::array<std::uint64_t, 256> masses{};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t key = key_at(i);
      // Equal above this byte. Two shifts, because a shift by 64 is undefined.
      if ((key ^ decided) >> shift >> 8 == 0) masses[key >> shift & 0xFF] += mass_at(i);
    }
    std::uint64_t digit = 255;
    while (digit > 0 && masses[digit] < needed) needed -= masses[digit--];
    decided |= digit << shift;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (key_at(i) != decided) continue;
    const std::uint64_t mass = mass_at(i);
    if (mass >= needed) return {decided, i};
    needed -= mass;
  }
  return {decided, n};
}

}  // namespace imp::cpu

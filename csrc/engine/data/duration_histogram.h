// A histogram of durations with one bucket per power of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace imp {

struct DurationHistogram {
  static constexpr std::size_t kSize = 25;

  // counts[i]: durations from 2^(i-1) up to 2^i microseconds. The first bucket holds all shorter ones, the last all
  // longer ones.
  std::array<std::uint64_t, kSize> counts{};
  std::int64_t sum_ns = 0;

  void add(std::int64_t ns) noexcept {
    const auto us = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)) / 1000;
    ++counts[std::min(static_cast<std::size_t>(std::bit_width(us)), kSize - 1)];
    sum_ns += ns;
  }
};

}  // namespace imp

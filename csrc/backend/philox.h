// Philox-4x32-10, a counter-based random number generator ("Parallel Random Numbers: As Easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace imp {

constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

// The 64 random bits of one draw. They depend only on the seed, the number of the sequence and the output index.
constexpr std::uint64_t draw_bits(std::uint64_t seed, std::uint32_t sequence, std::uint32_t index) {
  const auto words =
      philox({index, sequence, 0, 0}, {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace imp

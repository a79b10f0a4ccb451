// Rules of sampling parameters that all backends share.
#pragma once

#include <bit>
#include <cstdint>

#include "backend/sampler.h"

namespace imp {

inline constexpr float kGreedyBelow = 1e-4F;  // temperatures below this mean greedy

constexpr bool is_greedy(const SamplerParams& params) {
  return params.temperature < kGreedyBelow || params.top_k == 1;
}

// 0 means all tokens.
constexpr int active_top_k(const SamplerParams& params, int vocab_size) {
  return params.top_k > 0 && params.top_k < vocab_size ? params.top_k : 0;
}

// Whether every candidate of non-zero weight may be drawn.
constexpr bool keeps_all(const SamplerParams& params, int vocab_size) {
  return active_top_k(params, vocab_size) == 0 && params.top_p >= 1 && params.min_p <= 0 && params.typical_p >= 1;
}

// Upper bound of a history's length: the pending token has no position in the cache.
constexpr int max_history_of(int max_context) {
  return max_context + 1;
}

// ceil(p · total), at least 1, computed exactly: p in (0, 1] is a 24-bit integer over a power of two, total is below
// 2^63.
constexpr std::uint64_t share(float p, std::uint64_t total) {
  const auto word = std::bit_cast<std::uint32_t>(p);
  const int exponent = static_cast<int>(word >> 23);
  const std::uint64_t mantissa = exponent == 0 ? word : (word & 0x7FFFFFU) | 0x800000U;
  const int shift = 150 - (exponent == 0 ? 1 : exponent);  // at least 23
  if (shift > 90) return 1;                                // the product has at most 87 bits
  // The product in two parts: 2^32 · high + low.
  std::uint64_t low = mantissa * (total & 0xFFFFFFFFU);
  const std::uint64_t high = mantissa * (total >> 32) + (low >> 32);
  low &= 0xFFFFFFFFU;
  std::uint64_t quotient = 0;
  bool has_rest = false;
  if (shift < 32) {
    quotient = high << (32 - shift) | low >> shift;
    has_rest = (low & ((std::uint64_t{1} << shift) - 1)) != 0;
  } else {
    quotient = high >> (shift - 32);
    has_rest = low != 0 || (high & ((std::uint64_t{1} << (shift - 32)) - 1)) != 0;
  }
  quotient += has_rest ? 1 : 0;
  return quotient > 1 ? quotient : 1;
}

}  // namespace imp

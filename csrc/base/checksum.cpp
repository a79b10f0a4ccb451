// Eight independent multiply-and-rotate hashes, one for each of eight words of 64 bits; the last step combines them.
// Each step is invertible, so a change of one word always changes the sum.
#include "base/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace imp {
namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;  // odd; 2^64 divided by the golden ratio
constexpr std::size_t kLanes = 8, kStepBytes = 8 * kLanes;

using Lanes = std::array<std::uint64_t, kLanes>;

// The shift moves high bits to where the product spreads them. Otherwise a change of a word's highest bit would remain
// one bit, which a change in the next word could undo.
std::uint64_t mix(std::uint64_t sum, std::uint64_t word) noexcept {
  sum ^= word;
  return std::rotl((sum ^ (sum >> 29)) * kFactor, 29);
}

void add(Lanes& lanes, const std::byte* bytes) noexcept {
  for (std::size_t i = 0; i < kLanes; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes + 8 * i, sizeof word);
    lanes[i] = mix(lanes[i], word);
  }
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  Lanes lanes;
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = seed + (i + 1) * kFactor;
  std::size_t at = 0;
  for (; at + kStepBytes <= bytes.size(); at += kStepBytes) add(lanes, bytes.data() + at);
  if (at < bytes.size()) {
    std::byte last[kStepBytes] = {};
    std::memcpy(last, bytes.data() + at, bytes.size() - at);
    add(lanes, last);
  }
  std::uint64_t sum = bytes.size();
  for (const std::uint64_t lane : lanes) sum = mix(sum, lane);
  // The low bits of the last lanes have gone through few steps: mix them once more.
  sum = mix(sum ^ (sum >> 32), 0);
  return sum ^ (sum >> 32);
}

}  // namespace imp

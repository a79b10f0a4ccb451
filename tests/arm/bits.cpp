// Random numbers, digests and comparisons.
#include "bits.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace proof {

std::uint64_t Random::next() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545F4914F6CDD1DU;
}

float Random::uniform() {
  return static_cast<float>(next() >> 40) * 0x1p-23F - 1.0F;
}

float Random::extreme() {
  const std::uint32_t word = static_cast<std::uint32_t>(next() >> 32);
  switch (next() >> 61) {
    case 0:
      return std::bit_cast<float>(word);
    case 1:
      return std::bit_cast<float>((word & 0x807FFFFFU) | 0x3F800000U);
    case 2:
      return std::bit_cast<float>(word & 0x807FFFFFU);
    case 3:
      return uniform() * 0x1p125F;
    case 4:
      return uniform() * 0x1p-120F;
    case 5:
      return static_cast<float>(static_cast<std::int32_t>(word) >> (word & 15U) >> 4) + 0.5F;
    case 6:
      return static_cast<float>(static_cast<std::int32_t>(word));
    default: {
      // Leaves out the smallest normal number: a result that rounds up to it differs (base/float_mode.h).
      constexpr std::uint32_t kSpecial[] = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000,
                                            0x7FC00000, 0x4F000000, 0xCF000000, 0x00800001};
      return std::bit_cast<float>(kSpecial[word & 7U]);
    }
  }
}

std::uint32_t word_of(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  return (word & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC00000U : word;
}

std::vector<std::uint32_t> words_of(std::span<const float> values) {
  std::vector<std::uint32_t> words;
  words.reserve(values.size());
  for (const float value : values) words.push_back(word_of(value));
  return words;
}

void print_digest(const std::string& what, std::span<const std::uint32_t> words) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const std::uint32_t word : words) digest = (digest ^ word) * 0x100000001B3U;
  std::printf("%s %016llx\n", what.c_str(), static_cast<unsigned long long>(digest));
}

void require_equal(const std::string& what, std::span<const std::uint32_t> found,
                   std::span<const std::uint32_t> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i < found.size() && found[i] == expected[i]) continue;
    std::fprintf(stderr, "%s: word %zu is %08x, expected %08x\n", what.c_str(), i, i < found.size() ? found[i] : 0,
                 expected[i]);
    std::exit(1);
  }
}

}  // namespace proof

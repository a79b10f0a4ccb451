// Prints a digest of the bits of each result, one line each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace proof {

// xorshift64*. It gives the same numbers on every processor.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  std::uint64_t next();
  std::uint8_t byte() { return static_cast<std::uint8_t>(next() >> 56); }
  std::int32_t integer() { return static_cast<std::int32_t>(next() >> 32); }
  float uniform();  // in [-1, 1)
  // Arbitrary bits, or a number near 1, denormal, huge, tiny, integral, half way between integers, zero or non-finite.
  float extreme();

 private:
  std::uint64_t state_;
};

// The bits of floats. All NaN give the same word, because processors produce different ones.
std::uint32_t word_of(float x);
std::vector<std::uint32_t> words_of(std::span<const float> values);

// Prints `what` and the digest of the words.
void print_digest(const std::string& what, std::span<const std::uint32_t> words);
// Exits with a message about the first word that differs, if any.
void require_equal(const std::string& what, std::span<const std::uint32_t> found,
                   std::span<const std::uint32_t> expected);

// Each compares all instruction sets of this processor with each other, then prints its digests.
void check_lanes();
void check_ops();
void check_gemms();

}  // namespace proof

// What is said of results: a digest of their bits, one line for each thing computed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace proof {

// xorshift64*: the same numbers on every processor.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  std::uint64_t next();
  std::uint8_t byte() { return static_cast<std::uint8_t>(next() >> 56); }
  std::int32_t integer() { return static_cast<std::int32_t>(next() >> 32); }
  float uniform();  // in [-1, 1)
  // Any bits at all, near 1, denormal, huge, tiny, whole, half way between two whole numbers, zero or not finite.
  float extreme();

 private:
  std::uint64_t state_;
};

// The bits of floats; one NaN is as good as another, since processors differ in which they make.
std::uint32_t word_of(float x);
std::vector<std::uint32_t> words_of(std::span<const float> values);

// Prints "what digest".
void tell(const std::string& what, std::span<const std::uint32_t> words);
// Ends the program where the words differ, naming the first that does.
void require_equal(const std::string& what, std::span<const std::uint32_t> found,
                   std::span<const std::uint32_t> expected);

// Each prints its lines, having compared every instruction set of this processor with each other.
void tell_lanes();
void tell_ops();
void tell_gemms();

}  // namespace proof

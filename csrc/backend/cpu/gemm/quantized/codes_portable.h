// Codes for any processor: the compiler's generic vectors and loops.
#pragma once

namespace imp::cpu {
namespace {

constexpr int kTileRows = 2;

using CodeWords = std::uint32_t __attribute__((vector_size(64)));

struct Codes {
  CodeWords v;  // 16 × 32 bits
};

inline Codes load_codes(const FourBytes& from) {
  Codes c;
  __builtin_memcpy(&c.v, from, sizeof c.v);
  return c;
}
inline Codes operator|(Codes a, Codes b) {
  return {a.v | b.v};
}
template <int from, int n, int to>
inline Codes place(Codes c) {
  constexpr std::uint32_t mask = 0x01010101U * ((1U << n) - 1);
  return {((c.v >> from) & mask) << to};
}
// Not inlined, here and below, since these are long scalar loops with several callers.
[[gnu::noinline]] Codes look_up(const std::uint8_t (&levels)[16], Codes c) {
  std::uint8_t bytes[64];
  __builtin_memcpy(bytes, &c.v, sizeof bytes);
  for (std::uint8_t& byte : bytes) byte = levels[byte];
  __builtin_memcpy(&c.v, bytes, sizeof bytes);
  return c;
}

[[gnu::noinline, maybe_unused]] void add_products(const FourBytes& codes, const std::int8_t* four, std::int32_t* sums) {
  for (int row = 0; row < kLanes; ++row) {
    sums[row] += codes[row][0] * four[0] + codes[row][1] * four[1] + codes[row][2] * four[2] + codes[row][3] * four[3];
  }
}

template <CodeRange range>
struct Operand {
  Operand() = default;
  explicit Operand(Codes c) { __builtin_memcpy(codes, &c.v, sizeof codes); }
  FourBytes codes;
};

template <CodeRange range, Part part, int n_panels>
class Dots {
 public:
  void start([[maybe_unused]] const ActivationBlock& x) {
    std::int32_t first = 0;
    if constexpr (range.zero_point > 0) first = bias_of<range, part>(x);
    for (std::int32_t& sum : sums_) sum = first;
  }
  void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    add_products(weights.codes, x.codes + 4 * j, sums_);
  }
  IntLanes value(const ActivationBlock&) const { return load_int(sums_); }

 private:
  std::int32_t sums_[kLanes];
};

}  // namespace
}  // namespace imp::cpu

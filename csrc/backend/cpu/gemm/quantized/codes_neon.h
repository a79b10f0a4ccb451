// Codes in four registers, multiplied by AArch64's dot-product instruction (sdot). Rows in pairs are multiplied by its
// matrix instruction (usmmla) if the including file is compiled for it.
#pragma once

#include <arm_neon.h>

namespace imp::cpu {
namespace {

// The integer sums of 4 rows, four weight vectors and the rows' codes fill 24 of 32 registers. The float sums are used
// once per 32 elements and may live in memory.
constexpr int kTileRows = 4;

struct Codes {
  uint8x16_t v[4];
};

inline Codes load_codes(const FourBytes& from) {
  return each<Codes>([&](int i) { return vld1q_u8(from[4 * i]); });
}
inline Codes operator|(Codes a, Codes b) {
  return each<Codes>([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
}
template <int from, int n, int to>
inline uint8x16_t place(uint8x16_t c) {
  if constexpr (from > to) c = vshrq_n_u8(c, from - to);
  if constexpr (from < to) c = vshlq_n_u8(c, to - from);
  // The ends of a byte need no mask: the shift fills with zeros.
  constexpr bool is_masked = (to == 0 && from > 0 && from + n == 8) || (from == 0 && to > 0 && to + n == 8);
  if constexpr (!is_masked) c = vandq_u8(c, vdupq_n_u8(((1 << n) - 1) << to));
  return c;
}
template <int from, int n, int to>
inline Codes place(Codes c) {
  return each<Codes>([&](int i) { return place<from, n, to>(c.v[i]); });
}
inline Codes look_up(const std::uint8_t (&levels)[16], Codes c) {
  const uint8x16_t table = vld1q_u8(levels);
  return each<Codes>([&](int i) { return vqtbl1q_u8(table, c.v[i]); });
}

// The instruction multiplies signed bytes. If codes exceed that range, flipping the top bit subtracts their zero point.
// Otherwise the codes keep it, and the sums start at minus its contribution.
template <CodeRange range>
inline constexpr bool kIsWide = range.most > 127;

template <CodeRange range>
struct Operand {
  static_assert(!kIsWide<range> || range.zero_point == 128);
  Operand() = default;
  explicit Operand(Codes c)
      : codes(each<Codes>([&](int i) { return kIsWide<range> ? veorq_u8(c.v[i], vdupq_n_u8(0x80)) : c.v[i]; })) {}
  Codes codes;
};

template <CodeRange range, Part part, int n_panels>
class Dots {
 public:
  void start([[maybe_unused]] const ActivationBlock& x) {
    if constexpr (kIsWide<range> || range.zero_point == 0) {
      sums_ = broadcast_int(0);
    } else {
      sums_ = broadcast_int(bias_of<range, part>(x));
    }
  }
  // Multiplies codes 4j to 4j + 3 of x: a lane of the 16 in one register. j is a constant in unrolled loops.
  [[gnu::always_inline]] void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    const int8x16_t sixteen = vld1q_s8(x.codes + j / 4 * 16);
    switch (j % 4) {
      case 0:
        return add_lane<0>(weights, sixteen);
      case 1:
        return add_lane<1>(weights, sixteen);
      case 2:
        return add_lane<2>(weights, sixteen);
      default:
        return add_lane<3>(weights, sixteen);
    }
  }
  IntLanes value(const ActivationBlock&) const { return sums_; }

 private:
  template <int lane>
  [[gnu::always_inline]] void add_lane(const Operand<range>& weights, int8x16_t sixteen) {
    sums_ = each<IntLanes>(
        [&](int i) { return vdotq_laneq_s32(sums_.v[i], vreinterpretq_s8_u8(weights.codes.v[i]), sixteen, lane); });
  }
  IntLanes sums_;
};

#if defined(__ARM_FEATURE_MATMUL_INT8)

// 8 codes of each of 16 rows of weights, those of two rows in a register.
struct PairOperand {
  PairOperand(Codes first, Codes second) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t low = vreinterpretq_u32_u8(first.v[i]), high = vreinterpretq_u32_u8(second.v[i]);
      codes[2 * i] = vreinterpretq_u8_u32(vzip1q_u32(low, high));
      codes[2 * i + 1] = vreinterpretq_u8_u32(vzip2q_u32(low, high));
    }
  }
  uint8x16_t codes[8];
};

// Dots of two rows of activations. The instruction multiplies two rows of 8 unsigned codes by two of 8 signed ones. So
// weights of any range keep their zero point.
template <CodeRange range, Part part>
class PairDots {
 public:
  void start([[maybe_unused]] const ActivationBlock& first, [[maybe_unused]] const ActivationBlock& second) {
    int32x4_t both = vdupq_n_s32(0);
    if constexpr (range.zero_point > 0) {
      both = vzip1q_s32(vdupq_n_s32(bias_of<range, part>(first)), vdupq_n_s32(bias_of<range, part>(second)));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums_[i] = both;
  }
  // Multiplies codes 4j to 4j + 7.
  [[gnu::always_inline]] void add(const PairOperand& weights, const ActivationBlock& first,
                                  const ActivationBlock& second, int j) {
    const int8x16_t both = vcombine_s8(vld1_s8(first.codes + 4 * j), vld1_s8(second.codes + 4 * j));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums_[i] = vusmmlaq_s32(sums_[i], weights.codes[i], both);
  }
  IntLanes first() const {
    return each<IntLanes>([&](int i) { return vuzp1q_s32(sums_[2 * i], sums_[2 * i + 1]); });
  }
  IntLanes second() const {
    return each<IntLanes>([&](int i) { return vuzp2q_s32(sums_[2 * i], sums_[2 * i + 1]); });
  }

 private:
  // A register has two rows of weights, each with the first row of activations, then with the second.
  int32x4_t sums_[8];
};

#endif

}  // namespace
}  // namespace imp::cpu

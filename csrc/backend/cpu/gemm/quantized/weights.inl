// Reads the codes, scales and minima of panel blocks for each quantized type, with the functions of codes.h.
//
//   Block            the panel block
//   kGroups          groups of 32 elements in it
//   kRange           range of its codes
//   codes<g>(b, j)   elements 4j to 4j + 3 of group g
//   kScalePer        group, or half group
//   scale<i>(b)      the scale of group or half group i
//   min<i>(b)        the minimum added to its elements, if kHasMin
#include "backend/cpu/gemm/quantized/codes.h"

namespace imp::cpu {
namespace {

enum class ScalePer { group, half_group };

// Nibbles of 32 elements in 4 units: the low nibbles are the first 16 elements.
inline Codes split_nibbles(const FourBytes* units, int j) {
  return j < 4 ? place<0, 4, 0>(load_codes(units[j])) : place<4, 4, 0>(load_codes(units[j - 4]));
}

// Nibbles of 64 elements in 8 units: the low nibbles are the first 32 elements.
template <int group>
inline Codes nibbles_of_pair(const FourBytes* units, int j) {
  return place<group % 2 * 4, 4, 0>(load_codes(units[group / 2 * 8 + j]));
}

// Bits 2s and 2s + 1 of 8 units of 128 elements: the low ones are the first 32 elements. Moves them to bit `to`.
template <int group, int to>
inline Codes quarters(const FourBytes* units, int j) {
  return place<group % 4 * 2, 2, to>(load_codes(units[group / 4 * 8 + j]));
}

// A bit of unit j's bytes, moved to bit `to`.
template <int bit, int to>
inline Codes one_bit(const FourBytes* units, int j) {
  return place<bit, 1, to>(load_codes(units[j]));
}

inline Codes fifth_bits(const FourBytes& bits, int j) {
  const Codes all = load_codes(bits);
  switch (j) {
    case 0:
      return place<0, 1, 4>(all);
    case 1:
      return place<1, 1, 4>(all);
    case 2:
      return place<2, 1, 4>(all);
    case 3:
      return place<3, 1, 4>(all);
    case 4:
      return place<4, 1, 4>(all);
    case 5:
      return place<5, 1, 4>(all);
    case 6:
      return place<6, 1, 4>(all);
    default:
      return place<7, 1, 4>(all);
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K; see tensor/quant/group_scales.h.
using PackedScales = std::uint8_t[12][16];

template <int group>
inline IntLanes six_bit_scale(const PackedScales& packed) {
  if constexpr (group < 4) {
    return load_u8(packed[group]) & broadcast_int(63);
  } else {
    return (load_u8(packed[group + 4]) & broadcast_int(15)) |
           shift_left<4>(shift_right_logical<6>(load_u8(packed[group - 4])));
  }
}

template <int group>
inline IntLanes six_bit_min(const PackedScales& packed) {
  if constexpr (group < 4) {
    return load_u8(packed[group + 4]) & broadcast_int(63);
  } else {
    return shift_right_logical<4>(load_u8(packed[group + 4])) |
           shift_left<4>(shift_right_logical<6>(load_u8(packed[group])));
  }
}

inline Lanes negative(Lanes x) {
  return from_bits(bits(x) ^ broadcast_int(INT32_MIN));
}

struct OneScale {
  static constexpr ScalePer kScalePer = ScalePer::group;
  static constexpr bool kHasMin = false;
  template <int, class Block>
  static Lanes scale(const Block& b) {
    return load_f16(b.d);
  }
};

struct OneScaleAndMin {
  static constexpr ScalePer kScalePer = ScalePer::group;
  static constexpr bool kHasMin = true;
  template <int, class Block>
  static Lanes scale(const Block& b) {
    return load_f16(b.d);
  }
  template <int, class Block>
  static Lanes min(const Block& b) {
    return load_f16(b.m);
  }
};

struct Q8_0 : OneScale {
  using Block = PanelBlockQ8_0;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{255, 128};
  template <int>
  static Codes codes(const Block& b, int j) {
    return load_codes(b.codes[j]);
  }
};

struct Q4_0 : OneScale {
  using Block = PanelBlockQ4_0;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{15, 8};
  template <int>
  static Codes codes(const Block& b, int j) {
    return split_nibbles(b.quants, j);
  }
};

struct Q4_1 : OneScaleAndMin {
  using Block = PanelBlockQ4_1;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{15, 0};
  template <int>
  static Codes codes(const Block& b, int j) {
    return split_nibbles(b.quants, j);
  }
};

struct Q5_0 : OneScale {
  using Block = PanelBlockQ5_0;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{31, 16};
  template <int>
  static Codes codes(const Block& b, int j) {
    return split_nibbles(b.quants, j) | fifth_bits(b.high_bits, j);
  }
};

struct Q5_1 : OneScaleAndMin {
  using Block = PanelBlockQ5_1;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{31, 0};
  template <int>
  static Codes codes(const Block& b, int j) {
    return split_nibbles(b.quants, j) | fifth_bits(b.high_bits, j);
  }
};

// The levels of IQ4_NL and IQ4_XS, plus 128.
constexpr std::uint8_t kIq4Codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

struct IQ4_NL : OneScale {
  using Block = PanelBlockIQ4_NL;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{241, 128};
  template <int>
  static Codes codes(const Block& b, int j) {
    return look_up(kIq4Codes, split_nibbles(b.quants, j));
  }
};

struct IQ4_XS {
  using Block = PanelBlockIQ4_XS;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{241, 128};
  static constexpr ScalePer kScalePer = ScalePer::group;
  static constexpr bool kHasMin = false;
  template <int g>
  static Codes codes(const Block& b, int j) {
    return look_up(kIq4Codes, split_nibbles(b.quants + 4 * g, j));
  }
  template <int g>
  static Lanes scale(const Block& b) {
    const IntLanes low = shift_right_logical<g % 2 * 4>(load_u8(b.scales_low[g / 2])) & broadcast_int(15);
    const IntLanes high = shift_right_logical<2 * g>(load_u16(b.scales_high)) & broadcast_int(3);
    return load_f16(b.d) * from_int((low | shift_left<4>(high)) - broadcast_int(32));
  }
};

// The levels of MXFP4, plus 16.
constexpr std::uint8_t kFp4Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

struct MXFP4 {
  using Block = PanelBlockMXFP4;
  static constexpr int kGroups = 1;
  static constexpr CodeRange kRange{28, 16};
  static constexpr ScalePer kScalePer = ScalePer::group;
  static constexpr bool kHasMin = false;
  template <int>
  static Codes codes(const Block& b, int j) {
    return look_up(kFp4Codes, split_nibbles(b.quants, j));
  }
  // 2^(exponent - 128): half of the float with this byte as its exponent bits. The two lowest are subnormal, which
  // compute threads flush to zero. 255, which the type defines as NaN, becomes infinite.
  template <int>
  static Lanes scale(const Block& b) {
    return from_bits(shift_left<23>(load_u8(b.exponents))) * broadcast(0.5F);
  }
};

// Scales and minima of 6 bits, in units of d and -dmin.
struct SixBitScales {
  static constexpr ScalePer kScalePer = ScalePer::group;
  static constexpr bool kHasMin = true;
  template <int g, class Block>
  static Lanes scale(const Block& b) {
    return load_f16(b.d) * from_int(six_bit_scale<g>(b.scales));
  }
  template <int g, class Block>
  static Lanes min(const Block& b) {
    return negative(load_f16(b.dmin) * from_int(six_bit_min<g>(b.scales)));
  }
};

struct Q4_K : SixBitScales {
  using Block = PanelBlockQ4_K;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{15, 0};
  template <int g>
  static Codes codes(const Block& b, int j) {
    return nibbles_of_pair<g>(b.quants, j);
  }
};

struct Q5_K : SixBitScales {
  using Block = PanelBlockQ5_K;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{31, 0};
  template <int g>
  static Codes codes(const Block& b, int j) {
    return nibbles_of_pair<g>(b.quants, j) | one_bit<g, 4>(b.high_bits, j);
  }
};

struct Q6_K {
  using Block = PanelBlockQ6_K;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{63, 32};
  static constexpr ScalePer kScalePer = ScalePer::half_group;
  static constexpr bool kHasMin = false;
  template <int g>
  static Codes codes(const Block& b, int j) {
    const FourBytes(&units)[3] = b.codes[2 * g + j / 4];
    if (j % 4 < 3) return place<0, 6, 0>(load_codes(units[j % 4]));
    return place<6, 2, 0>(load_codes(units[0])) | place<6, 2, 2>(load_codes(units[1])) |
           place<6, 2, 4>(load_codes(units[2]));
  }
  template <int h>
  static Lanes scale(const Block& b) {
    const IntLanes both = load_i8_pairs(b.scales[h / 2]);
    return load_f16(b.d) * from_int(shift_right<16>(h % 2 == 0 ? shift_left<16>(both) : both));
  }
};

struct Q3_K {
  using Block = PanelBlockQ3_K;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{7, 4};
  static constexpr ScalePer kScalePer = ScalePer::half_group;
  static constexpr bool kHasMin = false;
  template <int g>
  static Codes codes(const Block& b, int j) {
    return quarters<g, 0>(b.quants, j) | one_bit<g, 2>(b.high_bits, j);
  }
  template <int h>
  static Lanes scale(const Block& b) {
    const IntLanes low = shift_right_logical<h / 8 * 4>(load_u8(b.scales[h % 8])) & broadcast_int(15);
    const IntLanes high = shift_right_logical<h / 4 * 2>(load_u8(b.scales[8 + h % 4])) & broadcast_int(3);
    return load_f16(b.d) * from_int((low | shift_left<4>(high)) - broadcast_int(32));
  }
};

struct TQ2_0 : OneScale {
  using Block = PanelBlockTQ2_0;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{3, 1};
  template <int g>
  static Codes codes(const Block& b, int j) {
    return quarters<g, 0>(b.quants, j);
  }
};

struct Q2_K {
  using Block = PanelBlockQ2_K;
  static constexpr int kGroups = 8;
  static constexpr CodeRange kRange{3, 0};
  static constexpr ScalePer kScalePer = ScalePer::half_group;
  static constexpr bool kHasMin = true;
  template <int g>
  static Codes codes(const Block& b, int j) {
    return quarters<g, 0>(b.quants, j);
  }
  template <int h>
  static Lanes scale(const Block& b) {
    return load_f16(b.d) * from_int(load_u8(b.scales[h]) & broadcast_int(15));
  }
  template <int h>
  static Lanes min(const Block& b) {
    return negative(load_f16(b.dmin)) * from_int(shift_right_logical<4>(load_u8(b.scales[h])));
  }
};

}  // namespace
}  // namespace imp::cpu

// Panel blocks: quantized blocks of 16 rows as kernels load them (packed weight panels for VNNI and dp instructions).
//
// A panel block has the bytes of the same block of 16 rows of the file, interleaved by row: codes in units of 4 bytes,
// so that one 64-byte vector has 4 elements of every row, and scales in units of their size. Inside a unit bytes are as
// in the file (tensor/quant/), with three exceptions that save work in the loop: Q8_0's codes are stored plus 128; the
// fifth bits of Q5_0 and Q5_1 so that bit 8b + j belongs to weight 4j + b; and Q6_K's codes whole, see there.
#pragma once

#include <cstdint>

namespace imp::cpu {

using FourBytes = std::uint8_t[16][4];  // of each row

struct PanelBlockQ8_0 {
  FourBytes codes[8];
  std::uint16_t d[16];
};

struct PanelBlockQ4_0 {
  FourBytes quants[4];
  std::uint16_t d[16];
};

struct PanelBlockQ4_1 {
  FourBytes quants[4];
  std::uint16_t d[16];
  std::uint16_t m[16];
};

struct PanelBlockQ5_0 {
  FourBytes quants[4];
  FourBytes high_bits;
  std::uint16_t d[16];
};

struct PanelBlockQ5_1 {
  FourBytes quants[4];
  FourBytes high_bits;
  std::uint16_t d[16];
  std::uint16_t m[16];
};

using PanelBlockIQ4_NL = PanelBlockQ4_0;  // indices of levels instead of numbers

struct PanelBlockMXFP4 {
  FourBytes quants[4];
  std::uint8_t exponents[16];
};

struct PanelBlockQ2_K {
  FourBytes quants[16];
  std::uint8_t scales[16][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};

struct PanelBlockQ3_K {
  FourBytes high_bits[8];
  FourBytes quants[16];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
};

struct PanelBlockQ4_K {
  FourBytes quants[32];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};

struct PanelBlockQ5_K {
  FourBytes high_bits[8];
  FourBytes quants[32];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};

// Three units hold the codes of 16 weights: the first 12 in the low six bits of the bytes, the last 4 in the top two
// bits of the three units, low bits first.
struct PanelBlockQ6_K {
  FourBytes codes[16][3];
  std::int8_t scales[8][16][2];  // per row the two of a group of 32
  std::uint16_t d[16];
};

struct PanelBlockTQ2_0 {
  FourBytes quants[16];
  std::uint16_t d[16];
};

struct PanelBlockIQ4_XS {
  FourBytes quants[32];
  std::uint8_t scales_low[4][16];
  std::uint16_t scales_high[16];
  std::uint16_t d[16];
};

// Multiplied as floats: one vector load has the same element of every row.
struct PanelBlockF8_E4M3 {
  std::uint8_t codes[64][16];
  float scales[16];
};

}  // namespace imp::cpu

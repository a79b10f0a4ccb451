// Panel blocks: quantized blocks of 16 rows as kernels load them (packed weight panels for VNNI and dp instructions).
//
// A panel block has the bytes of the same block of 16 rows of the file, interleaved by row: codes in units of 4 bytes,
// so that one 64-byte vector has 4 elements of every row, and scales in units of their size. Inside a unit bytes are as
// in the file (tensor/quant/), with three exceptions that save work in the loop: Q8_0's codes are stored plus 128; the
// fifth bits of Q5_0 and Q5_1 so that bit 8b + j belongs to weight 4j + b; and Q6_K's codes are regrouped (see
// PanelBlockQ6_K). Each block is followed by its units in order, kUnitsTYPE.
#pragma once

#include <cstdint>

namespace imp::cpu {

// A change of a unit's bytes.
enum class Change : std::uint8_t {
  none,
  plus_128,     // to each byte
  spread_bits,  // bit 4j + b of four bytes becomes bit 8b + j
};

// A run of equal units in a block of the file. The panel block has the runs in the listed order, and each unit 16
// times, once per row.
struct UnitRun {
  int file_offset;
  int unit_bytes;  // 1, 2 or 4
  int n_units;
  Change change = Change::none;
};

using FourBytes = std::uint8_t[16][4];  // of each row

struct PanelBlockQ8_0 {
  FourBytes codes[8];
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsQ8_0[] = {{2, 4, 8, Change::plus_128}, {0, 2, 1}};

struct PanelBlockQ4_0 {
  FourBytes quants[4];
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsQ4_0[] = {{2, 4, 4}, {0, 2, 1}};

struct PanelBlockQ4_1 {
  FourBytes quants[4];
  std::uint16_t d[16];
  std::uint16_t m[16];
};
inline constexpr UnitRun kUnitsQ4_1[] = {{4, 4, 4}, {0, 2, 2}};

struct PanelBlockQ5_0 {
  FourBytes quants[4];
  FourBytes high_bits;
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsQ5_0[] = {{6, 4, 4}, {2, 4, 1, Change::spread_bits}, {0, 2, 1}};

struct PanelBlockQ5_1 {
  FourBytes quants[4];
  FourBytes high_bits;
  std::uint16_t d[16];
  std::uint16_t m[16];
};
inline constexpr UnitRun kUnitsQ5_1[] = {{8, 4, 4}, {4, 4, 1, Change::spread_bits}, {0, 2, 2}};

using PanelBlockIQ4_NL = PanelBlockQ4_0;  // indices of levels instead of numbers
inline constexpr const auto& kUnitsIQ4_NL = kUnitsQ4_0;

struct PanelBlockMXFP4 {
  FourBytes quants[4];
  std::uint8_t exponents[16];
};
inline constexpr UnitRun kUnitsMXFP4[] = {{1, 4, 4}, {0, 1, 1}};

struct PanelBlockQ2_K {
  FourBytes quants[16];
  std::uint8_t scales[16][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};
inline constexpr UnitRun kUnitsQ2_K[] = {{16, 4, 16}, {0, 1, 16}, {80, 2, 2}};

struct PanelBlockQ3_K {
  FourBytes high_bits[8];
  FourBytes quants[16];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsQ3_K[] = {{0, 4, 24}, {96, 1, 12}, {108, 2, 1}};

struct PanelBlockQ4_K {
  FourBytes quants[32];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};
inline constexpr UnitRun kUnitsQ4_K[] = {{16, 4, 32}, {4, 1, 12}, {0, 2, 2}};

struct PanelBlockQ5_K {
  FourBytes high_bits[8];
  FourBytes quants[32];
  std::uint8_t scales[12][16];
  std::uint16_t d[16];
  std::uint16_t dmin[16];
};
inline constexpr UnitRun kUnitsQ5_K[] = {{16, 4, 40}, {4, 1, 12}, {0, 2, 2}};

// Three units hold the codes of 16 weights: the first 12 in the low six bits of the bytes, the last 4 in the top two
// bits of the three units, low bits first.
struct PanelBlockQ6_K {
  FourBytes codes[16][3];
  std::int8_t scales[8][16][2];  // per row the two of a group of 32
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsQ6_K[] = {{0, 4, 48}, {192, 2, 8}, {208, 2, 1}};  // of a block after regroup_q6_k

struct PanelBlockTQ2_0 {
  FourBytes quants[16];
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsTQ2_0[] = {{0, 4, 16}, {64, 2, 1}};

struct PanelBlockIQ4_XS {
  FourBytes quants[32];
  std::uint8_t scales_low[4][16];
  std::uint16_t scales_high[16];
  std::uint16_t d[16];
};
inline constexpr UnitRun kUnitsIQ4_XS[] = {{8, 4, 32}, {4, 1, 4}, {2, 2, 1}, {0, 2, 1}};

// Multiplied as floats: one vector load has the same element of every row.
struct PanelBlockF8_E4M3 {
  std::uint8_t codes[64][16];
  float scales[16];
};
inline constexpr UnitRun kUnitsF8_E4M3[] = {{4, 1, 64}, {0, 4, 1}};

}  // namespace imp::cpu

// The layout tile16: the place of each part of a weight in a tile of 16 rows by 256 elements.
//
// A tile has as many bytes as its rows in the file. Tiles are ordered along k, then along rows. A lane's part of a
// matrix instruction's left operand is 16 bytes at 16 · lane. So every load of weights has 16 bytes, and a warp's bytes
// are contiguous:
//   int8    fragments of 16x32: lane = row % 8 · 4 + k % 16 / 4, register = row / 8 + k % 32 / 16 · 2, byte = k % 4
//   16 bits fragments of 16x16: lane = row % 8 · 4 + k % 8 / 2, register = row / 8 + k % 16 / 8 · 2, half = k % 2
// Codes of fewer bits share the bytes of a fragment: two fragments of 4 bits (the even one in the low half), four of 2
// bits, eight of 1 bit.
//
// Parts, in this order:
//   Q8_0       8-bit codes; scales
//   Q4_0       4-bit codes; scales
//   Q4_K       4-bit codes; headers
//   Q5_K       4-bit codes; fifth bits; headers
//   Q6_K       4-bit codes; pairs of high bits; scales (of 16 elements each: two int8 for a float16); factors
//   F8_E4M3    8-bit codes; scales (float32, of 64 elements each)
//   F16, BF16  elements
#pragma once

#include "backend/gemm.h"
#include "base/ceil_div.h"

// The types with tiles, in the order of the kernel list. Calls `use(name, Type, kernel)` for each; `Type` is its name
// in DType. It has a Tile, a WeightStep, a TileRow and its moves in layouts.cpp; one with integer codes also has
// TileCodes.
// clang-format off
#define IMP_INTEGER_TILE_TYPES(use, kernel) \
  use(q8_0, Q8_0, kernel) \
  use(q4_0, Q4_0, kernel) \
  use(q4_k, Q4_K, kernel) \
  use(q5_k, Q5_K, kernel) \
  use(q6_k, Q6_K, kernel)
#define IMP_FLOAT_TILE_TYPES(use, kernel) \
  use(f8_e4m3, F8_E4M3, kernel) \
  use(f16, F16, kernel) \
  use(bf16, BF16, kernel)
#define IMP_TILE_TYPES(use, kernel) \
  IMP_INTEGER_TILE_TYPES(use, kernel) \
  IMP_FLOAT_TILE_TYPES(use, kernel)
// clang-format on

namespace imp::cuda {

inline constexpr int kTileRows = static_cast<int>(kPanelRows);
inline constexpr int kTileElements = static_cast<int>(kTileDepth);  // per row
inline constexpr int kBlockElements = 32;
inline constexpr int kTileBlocks = kTileElements / kBlockElements;
inline constexpr int kQuadBlocks = 4;
inline constexpr int kFloatBlockElements = 64;  // of F8_E4M3
inline constexpr int kFloatBlocks = kTileElements / kFloatBlockElements;
inline constexpr int kLaneBytes = 16;                   // of a fragment
inline constexpr int kFragmentBytes = 32 * kLaneBytes;  // 16x32 int8, or 16x16 elements of 16 bits

constexpr std::int64_t tiles_along(std::int64_t k) {
  return ceil_div(k, kTileElements);
}
constexpr std::int64_t strips_of(std::int64_t n) {
  return ceil_div(n, kTileRows);
}

// Of element k of a row in a fragment of int8.
constexpr int byte_in_fragment(int row, int k) {
  const int lane = row % 8 * 4 + k % 16 / 4, in_register = row / 8 + k % 32 / 16 * 2;
  return lane * kLaneBytes + in_register * 4 + k % 4;
}
// The bytes of element k (0 to 255) of a row (0 to 15) in a tile, and the bit at which the element begins.
constexpr int byte_offset(int row, int k) {
  return k / 32 * kFragmentBytes + byte_in_fragment(row, k);
}
constexpr int nibble_offset(int row, int k) {
  return k / 64 * kFragmentBytes + byte_in_fragment(row, k);
}
constexpr int nibble_shift(int k) {
  return k / 32 % 2 * 4;
}
// These two offsets are relative to the part.
constexpr int pair_offset(int row, int k) {
  return k / 128 * kFragmentBytes + byte_in_fragment(row, k);
}
constexpr int pair_shift(int k) {
  return k / 32 % 4 * 2;
}
constexpr int bit_offset(int row, int k) {
  return byte_in_fragment(row, k);
}
constexpr int half_offset(int row, int k) {
  const int lane = row % 8 * 4 + k % 8 / 2, in_register = row / 8 + k % 16 / 8 * 2;
  return k / 16 * kFragmentBytes + lane * kLaneBytes + in_register * 4 + k % 2 * 2;
}

// Offsets relative to their parts. A lane's two rows are neighbours.
constexpr int scale_offset(int row, int block) {  // two bytes
  return ((row % 8 * kTileBlocks + block) * 2 + row / 8) * 2;
}
constexpr int float_scale_offset(int row, int block) {  // four bytes
  return ((row % 8 * kFloatBlocks + block) * 2 + row / 8) * 4;
}
constexpr int header_offset(int row) {  // 16 bytes: d and dmin as float16, and twelve bytes of scales and minima
  return (row % 8 * 2 + row / 8) * 16;
}
constexpr int factor_offset(int row) {  // float16
  return (row % 8 * 2 + row / 8) * 2;
}

// The offsets of the parts after the codes, and the size of a tile.
template <DType kType>
struct Tile;
template <>
struct Tile<DType::Q8_0> {
  static constexpr int kScales = 8 * kFragmentBytes, kBytes = kScales + kTileRows * kTileBlocks * 2;
};
template <>
struct Tile<DType::Q4_0> {
  static constexpr int kScales = 4 * kFragmentBytes, kBytes = kScales + kTileRows * kTileBlocks * 2;
};
template <>
struct Tile<DType::Q4_K> {
  static constexpr int kHeaders = 4 * kFragmentBytes, kBytes = kHeaders + kTileRows * 16;
};
template <>
struct Tile<DType::Q5_K> {
  static constexpr int kFifthBits = 4 * kFragmentBytes, kHeaders = kFifthBits + kFragmentBytes;
  static constexpr int kBytes = kHeaders + kTileRows * 16;
};
template <>
struct Tile<DType::Q6_K> {
  static constexpr int kHighBits = 4 * kFragmentBytes, kScales = kHighBits + 2 * kFragmentBytes;
  static constexpr int kFactors = kScales + kTileRows * kTileBlocks * 2, kBytes = kFactors + kTileRows * 2;
};
template <>
struct Tile<DType::F8_E4M3> {
  static constexpr int kScales = 8 * kFragmentBytes, kBytes = kScales + kTileRows * kFloatBlocks * 4;
};
template <>
struct Tile<DType::F16> {
  static constexpr int kBytes = 16 * kFragmentBytes;
};
template <>
struct Tile<DType::BF16> {
  static constexpr int kBytes = 16 * kFragmentBytes;
};

}  // namespace imp::cuda

// Restores a row's part of a tile to the file's bytes on the device: the inverse of layouts.cpp.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/gemm/tiles.h"
#include "tensor/quant/f8_e4m3.h"
#include "tensor/quant/floats.h"
#include "tensor/quant/q4_0.h"
#include "tensor/quant/q4_k.h"
#include "tensor/quant/q5_k.h"
#include "tensor/quant/q6_k.h"
#include "tensor/quant/q8_0.h"

namespace imp::cuda {

// file_byte(tile, row, i) is byte i of the part of a row (0 to 15) that is in the tile.
template <class Block>
struct TileRow {
  static constexpr bool kExists = false;
};

static __device__ __forceinline__ int nibble_at(const std::byte* tile, int row, int k) {
  return static_cast<int>(tile[nibble_offset(row, k)]) >> nibble_shift(k) & 15;
}
static __device__ __forceinline__ std::byte nibbles_at(const std::byte* tile, int row, int low_k, int high_k) {
  return static_cast<std::byte>(nibble_at(tile, row, low_k) | nibble_at(tile, row, high_k) << 4);
}
// Byte i of those that hold halves (nibbles) of two neighbouring blocks, in the file and in the tile.
static __device__ __forceinline__ std::byte paired_nibbles(const std::byte* tile, int row, int i) {
  return tile[nibble_offset(row, i / 32 * 64 + i % 32)];
}

template <>
struct TileRow<quant::BlockQ8_0> {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    const int block = i / 34, in_block = i % 34;
    if (in_block < 2) return tile[Tile<DType::Q8_0>::kScales + scale_offset(row, block) + in_block];
    return tile[byte_offset(row, block * kBlockElements + in_block - 2)];
  }
};

template <>
struct TileRow<quant::BlockQ4_0> {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    const int block = i / 18, in_block = i % 18;
    if (in_block < 2) return tile[Tile<DType::Q4_0>::kScales + scale_offset(row, block) + in_block];
    const int k = block * kBlockElements + in_block - 2;
    return nibbles_at(tile, row, k, k + 16);
  }
};

template <>
struct TileRow<quant::BlockQ4_K> {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    if (i < 16) return tile[Tile<DType::Q4_K>::kHeaders + header_offset(row) + i];
    return paired_nibbles(tile, row, i - 16);
  }
};

template <>
struct TileRow<quant::BlockQ5_K> {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    if (i < 16) return tile[Tile<DType::Q5_K>::kHeaders + header_offset(row) + i];
    if (i < 48) return tile[Tile<DType::Q5_K>::kFifthBits + bit_offset(row, i - 16)];
    return paired_nibbles(tile, row, i - 48);
  }
};

template <>
struct TileRow<quant::BlockQ6_K> {
  using Its = Tile<DType::Q6_K>;
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    if (i < 128) {
      const int k = i / 64 * 128 + i % 64;
      return nibbles_at(tile, row, k, k + 64);
    }
    if (i < 192) {
      const int first = (i - 128) / 32 * 128 + i % 32;
      int pairs = 0;
      for (int j = 0; j < 4; ++j) {
        const int k = first + 32 * j;
        pairs |= (static_cast<int>(tile[Its::kHighBits + pair_offset(row, k)]) >> pair_shift(k) & 3) << (2 * j);
      }
      return static_cast<std::byte>(pairs);
    }
    if (i < 208) return tile[Its::kScales + scale_offset(row, (i - 192) / 2) + i % 2];
    return tile[Its::kFactors + factor_offset(row) + i - 208];
  }
};

template <>
struct TileRow<quant::BlockF8_E4M3> {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    const int block = i / 68, in_block = i % 68;
    if (in_block < 4) return tile[Tile<DType::F8_E4M3>::kScales + float_scale_offset(row, block) + in_block];
    return tile[byte_offset(row, block * kFloatBlockElements + in_block - 4)];
  }
};

struct TileRowOfHalves {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ std::byte file_byte(const std::byte* tile, int row, int i) {
    return tile[half_offset(row, i / 2) + i % 2];
  }
};
template <>
struct TileRow<quant::BlockF16> : TileRowOfHalves {};
template <>
struct TileRow<quant::BlockBF16> : TileRowOfHalves {};

#define IMP_CHECK_ROW(name, Type, kernel) static_assert(TileRow<quant::Block##Type>::kExists);
IMP_TILE_TYPES(IMP_CHECK_ROW, any)
#undef IMP_CHECK_ROW

}  // namespace imp::cuda

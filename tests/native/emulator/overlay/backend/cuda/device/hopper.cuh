// The instructions that only Hopper has, in plain C++. This file replaces the one of csrc.
#pragma once

#include <cstring>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/device/warpgroup.h"
#include "native/emulator/hopper.h"

#define IMP_HOPPER 1

namespace imp::cuda::hopper {

using TensorMap = emu::TensorMap;

inline TensorMap make_tensor_map(Stream&, const void* data, std::int64_t n_elements, std::int64_t n_rows,
                                 std::int64_t row_bytes, int box_rows) {
  return emu::make_tensor_map(data, n_elements, n_rows, row_bytes, kTileRowElements, box_rows);
}

inline std::uint32_t address_of(const void* shared) {
  return emu::shared_offset(shared);
}
inline void init_barrier(std::uint64_t* barrier, unsigned n_arrivals) {
  emu::init_barrier(barrier, n_arrivals);
}
inline void fence_barrier_init() {}
inline void arrive(std::uint64_t* barrier) {
  emu::arrive(barrier, 0);
}
inline void arrive_expecting(std::uint64_t* barrier, unsigned n_bytes) {
  emu::arrive(barrier, n_bytes);
}
inline void wait(std::uint64_t* barrier, unsigned phase_parity) {
  emu::wait(barrier, phase_parity);
}
inline void begin_tile_copy(void* shared, const TensorMap& map, int element, int row, std::uint64_t* barrier) {
  emu::begin_tile_copy(shared, map, element, row, barrier);
}
template <int>
void keep_registers() {
  emu::meet_group(kWarpgroupThreads);
}
template <int>
void take_registers() {
  emu::meet_group(kWarpgroupThreads);
}
inline void begin_products() {}
inline void end_product_group() {
  emu::end_product_group();
}
template <int kUnderWay>
void wait_for_products() {
  emu::wait_for_products(kUnderWay);
  emu::meet_group(32);  // the products of a warp are complete for all of its lanes
}

// 16 elements of a column of b, in the layout of a descriptor.
template <class Decode>
void read_column(std::uint64_t tile, unsigned column, const Decode& decode, float (&values)[16]) {
  if (tile >> 62 != 1 || (tile >> 49 & 7) != 0) emu::fail("a descriptor of another layout");
  const auto begin = static_cast<std::uint32_t>(tile & 0x3fff) << 4,
             atom = static_cast<std::uint32_t>(tile >> 32 & 0x3fff) << 4;
  for (unsigned i = 0; i < 16; ++i) {
    const std::uint32_t at = swizzled(begin + column / 8 * atom + column % 8 * kTileRowBytes + 2 * i);
    std::uint16_t bits;
    if (at + sizeof bits > emu::dynamic_shared_bytes()) emu::fail("a product reads beyond shared memory");
    std::memcpy(&bits, emu::dynamic_shared() + at, sizeof bits);
    values[i] = decode(bits);
  }
}

// The part of one thread, when the product is complete.
template <class Decode>
void multiply_emulated(float (&d)[kProductGroups][4], const std::uint32_t (&a)[4], std::uint64_t tile,
                       const Decode& decode) {
  struct Fragment {
    std::uint32_t word[4];
  } mine;
  std::memcpy(&mine, a, sizeof mine);
  float rows[2][16];
  const unsigned group = emu::lane() / 4, t = emu::lane() % 4;
  emu::exchange(mine, [&](auto from) {
    for (unsigned owner = 0; owner < 4; ++owner) {
      const Fragment theirs = from(4 * group + owner);
      for (unsigned r = 0; r < 4; ++r) {
        for (unsigned e = 0; e < 2; ++e) {
          rows[r % 2][8 * (r / 2) + 2 * owner + e] = decode(static_cast<std::uint16_t>(theirs.word[r] >> (16 * e)));
        }
      }
    }
  });
  float column[16];
  for (unsigned j = 0; j < kProductGroups; ++j) {
    for (unsigned side = 0; side < 2; ++side) {
      read_column(tile, 8 * j + 2 * t + side, decode, column);
      for (unsigned half = 0; half < 2; ++half) {
        float& sum = d[j][2 * half + side];
        for (unsigned i = 0; i < 16; ++i) sum += rows[half][i] * column[i];
      }
    }
  }
}

inline void multiply_f16(float (&d)[kProductGroups][4], const std::uint32_t (&a)[4], std::uint64_t tile) {
  emu::begin_product(
      [&d, &a, tile] { multiply_emulated(d, a, tile, [](std::uint16_t bits) { return f16_to_f32(bits); }); });
}
inline void multiply_bf16(float (&d)[kProductGroups][4], const std::uint32_t (&a)[4], std::uint64_t tile) {
  emu::begin_product(
      [&d, &a, tile] { multiply_emulated(d, a, tile, [](std::uint16_t bits) { return bf16_to_f32(bits); }); });
}

}  // namespace imp::cuda::hopper

// AMX's tile registers in portable C++: what processors without them test the loops of tile_product.inl with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "backend/cpu/gemm/quantized/tile_config.h"

namespace imp::cpu {
namespace {

// Does what Intel's manual says of LDTILECFG, TILEZERO, TILELOADD, TILESTORED and TDPBSSD, and throws where they fault.
// With an unsigned B it is wrong, for the tests.
template <class B = std::int8_t>
class TileTwin {
 public:
  explicit TileTwin(const TileConfig& config) : config_(config) {
    require(config.palette == 1 && config.start_row == 0);
    for (const std::uint8_t byte : config.reserved) require(byte == 0);
    for (int tile = 0; tile < 16; ++tile) {
      require(config.rows[tile] <= (tile < kTiles ? kRows : 0));
      require(config.row_bytes[tile] <= (tile < kTiles ? kRowBytes : 0));
    }
  }

  void clear(int tile) {
    require_sized(tile);
    std::memset(tiles_[tile], 0, sizeof tiles_[tile]);
  }
  void load(int tile, const void* from, std::ptrdiff_t stride) {
    clear(tile);
    for (int row = 0; row < config_.rows[tile]; ++row) {
      std::memcpy(tiles_[tile][row], static_cast<const std::byte*>(from) + row * stride, config_.row_bytes[tile]);
    }
  }
  void store(int tile, void* to, std::ptrdiff_t stride) const {
    require_sized(tile);
    for (int row = 0; row < config_.rows[tile]; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles_[tile][row], config_.row_bytes[tile]);
    }
  }
  void add_products(int sums, int a, int b) {
    require(sums != a && sums != b && a != b);
    for (const int tile : {sums, a, b}) require_sized(tile);
    for (const int tile : {sums, a, b}) require(config_.row_bytes[tile] % 4 == 0);
    require(config_.rows[sums] == config_.rows[a] && config_.row_bytes[sums] == config_.row_bytes[b]);
    require(config_.row_bytes[a] / 4 == config_.rows[b]);
    for (int m = 0; m < config_.rows[sums]; ++m) {
      for (int n = 0; n < config_.row_bytes[sums]; n += 4) {
        std::uint32_t sum;  // wraps
        std::memcpy(&sum, &tiles_[sums][m][n], sizeof sum);
        for (int k = 0; k < config_.row_bytes[a]; ++k) {
          const int weight = static_cast<B>(tiles_[b][k / 4][n + k % 4]);
          sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(tiles_[a][m][k]) * weight);
        }
        std::memcpy(&tiles_[sums][m][n], &sum, sizeof sum);
      }
    }
  }

  // As tile_product.inl calls them.
  template <int tile>
  void clear() {
    clear(tile);
  }
  template <int tile>
  void load(const void* from, std::ptrdiff_t stride) {
    load(tile, from, stride);
  }
  template <int tile>
  void store(void* to, std::ptrdiff_t stride) const {
    store(tile, to, stride);
  }
  template <int sums, int a, int b>
  void add_products() {
    add_products(sums, a, b);
  }

 private:
  static constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;
  static void require(bool condition) {
    if (!condition) throw std::runtime_error("a processor would fault here");
  }
  void require_sized(int tile) const {
    require(tile < kTiles && config_.rows[tile] > 0 && config_.row_bytes[tile] > 0);
  }

  TileConfig config_;
  std::uint8_t tiles_[kTiles][kRows][kRowBytes] = {};
};

}  // namespace
}  // namespace imp::cpu

// The configuration of AMX's tile registers.
#pragma once

#include <cstdint>

namespace imp::cpu {

// The eight tiles' sizes, as the instruction LDTILECFG reads them: at most 16 rows of at most 64 bytes each.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  // entries from 8 on are 0
  std::uint8_t rows[16] = {};        // the same
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace imp::cpu

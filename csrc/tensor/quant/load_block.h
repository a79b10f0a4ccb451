// Copies one quant block out of bytes of any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace imp::quant {

template <class Block>
Block load_block(const std::byte* blocks, std::int64_t index) noexcept {
  Block block;
  std::memcpy(&block, blocks + index * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

}  // namespace imp::quant

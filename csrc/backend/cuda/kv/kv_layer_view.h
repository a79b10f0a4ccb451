// A view of the keys and values of one layer on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda {

// Elements that share a scale in a quantized cache.
constexpr int kKvGroup = 32;

// A part is the K or the V of one kv head in one block. For 16-bit types it is [tokens][head_dim]; for q8_0 codes
// [tokens][head_dim], then scales, float16 [tokens][head_dim / 32]. Parts are ordered [kv head][K, V] and aligned to 16
// bytes.
struct KvLayerView {
  std::byte* layer = nullptr;
  int part_bytes = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int token_bits = 0;  // a block has 1 << token_bits tokens

  constexpr int block_tokens() const { return 1 << token_bits; }
  constexpr std::byte* part(std::int32_t block, int kv_head, int which) const {
    // A part has at least 128 bytes, so a 32-bit index reaches all parts in memory.
    const auto heads_before = static_cast<std::uint32_t>(block) * static_cast<std::uint32_t>(n_kv_heads);
    const std::uint32_t number =
        (heads_before + static_cast<std::uint32_t>(kv_head)) * 2 + static_cast<std::uint32_t>(which);
    return layer + std::uint64_t{number} * static_cast<std::uint32_t>(part_bytes);
  }
  constexpr int block_of(int position) const { return position >> token_bits; }
  constexpr int offset_in_block(int position) const { return position & (block_tokens() - 1); }
  // In a part: the offset of the scales, and their bytes per token.
  constexpr int first_scale() const { return head_dim << token_bits; }
  constexpr int scale_bytes() const { return head_dim / kKvGroup * 2; }
};

}  // namespace imp::cuda

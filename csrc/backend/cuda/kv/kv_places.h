// Where the keys and values of one layer lie on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda {

// Elements that share a scale in a quantized cache.
constexpr int kKvGroup = 32;

// A part is the K or the V of one kv head in one block: of 16-bit types [tokens][head_dim], of q8_0 its codes
// [tokens][head_dim] and then its scales, float16 [tokens][head_dim / 32]. Parts follow each other as [kv head][K, V]
// and start at multiples of 16 bytes.
struct KvPlaces {
  std::byte* layer = nullptr;
  int part_bytes = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int token_bits = 0;  // a block has 1 << token_bits tokens

  constexpr int block_tokens() const { return 1 << token_bits; }
  constexpr std::byte* part(std::int32_t block, int kv_head, int which) const {
    // A part has 128 bytes or more: of those that a memory holds, numbers have 32 bits.
    const auto heads_before = static_cast<std::uint32_t>(block) * static_cast<std::uint32_t>(n_kv_heads);
    const std::uint32_t number =
        (heads_before + static_cast<std::uint32_t>(kv_head)) * 2 + static_cast<std::uint32_t>(which);
    return layer + std::uint64_t{number} * static_cast<std::uint32_t>(part_bytes);
  }
  constexpr int block_of(int position) const { return position >> token_bits; }
  constexpr int place_of(int position) const { return position & (block_tokens() - 1); }
  // In a part: where the scales begin, and the bytes that a token has of them.
  constexpr int first_scale() const { return head_dim << token_bits; }
  constexpr int scale_bytes() const { return head_dim / kKvGroup * 2; }
};

}  // namespace imp::cuda

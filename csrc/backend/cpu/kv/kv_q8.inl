// Quantized keys and values: blocks of 32 along head_dim, each with a scale. A panel of K has codes plus 128 as
// [head_dim / 4][16 tokens][4]; a panel of V has codes as [16 tokens][head_dim]. The scales follow, float16, as
// [head_dim / 32][16 tokens].
#pragma once

#include "backend/cpu/gemm/quantized/quantize_block.inl"
#include "backend/cpu/kv/kv_storage.inl"

namespace imp::cpu {
namespace {

constexpr int kBlock = 32;      // elements that share a scale
constexpr int kBlockWords = 8;  // of four codes each

// See attention_quantized.inl.
struct Q8Storage {
  static constexpr bool kQuantized = true;
  static constexpr int kElements = 1;
  using Queries = const void* const*;  // of blocks

  static const void* factors_of(const float* row, int n, float* scratch) {
    auto* blocks = reinterpret_cast<ActivationBlock*>(scratch);
    for (int d = 0; d < n; d += kBlock) quantize_block(row + d, *blocks++);
    return scratch;
  }
  static Lanes store_weights(float* scores, int token, Lanes x) {
    return UnpairedStorage::store_weights(scores, token, x);
  }
};

// A block of a key or value. Its codes use the scale as rounded for storage.
struct KvBlock {
  std::int8_t codes[kBlock];
  std::uint16_t scale;
};

inline KvBlock quantize_for_cache(const float* x) {
  KvBlock kept;
  const Lanes first = load(x), second = load(x + kLanes);
  const IntLanes magnitude = broadcast_int(0x7FFFFFFF);
  const std::int32_t max_bits = max_of(max(bits(first) & magnitude, bits(second) & magnitude));
  const float largest = __builtin_bit_cast(float, max_bits);
  std::uint16_t scales[kLanes];
  store_f16(scales, broadcast(largest / 127.0F));
  kept.scale = scales[0];
  float stored[kLanes];
  store(stored, broadcast_f16(kept.scale));
  // A block of zeros, or one whose scale is not finite, gets codes 0. The scale is then infinity or NaN and so marks
  // the block.
  const bool has_codes = stored[0] > 0 && stored[0] < __builtin_inff();
  const Lanes inverse = broadcast(has_codes ? 1.0F / stored[0] : 0.0F);
  const auto code = [&](Lanes part) {
    const Lanes most = broadcast(127.0F);
    const Lanes scaled = has_codes ? part * inverse : zero();
    return to_int(min(most, max(zero() - most, scaled)));
  };
  store_i8(kept.codes, code(first));
  store_i8(kept.codes + kLanes, code(second));
  return kept;
}

void append_quantized(const PanelRows& rows, void* k_panel, void* v_panel) {
  const int n_blocks = rows.head_dim / kBlock;
  auto* const k_codes = static_cast<std::uint8_t*>(k_panel);
  auto* const k_scales = reinterpret_cast<std::uint16_t*>(k_codes + rows.head_dim * kPanelTokens);
  auto* const v_codes = static_cast<std::int8_t*>(v_panel);
  auto* const v_scales = reinterpret_cast<std::uint16_t*>(v_codes + rows.head_dim * kPanelTokens);
  for (int i = 0; i < rows.n_tokens; ++i) {
    const int token = rows.first_token + i;
    for (int block = 0; block < n_blocks; ++block) {
      const KvBlock k = quantize_for_cache(rows.k + i * rows.k_stride + block * kBlock);
      for (int word = 0; word < kBlockWords; ++word) {
        std::uint32_t codes;
        __builtin_memcpy(&codes, k.codes + 4 * word, sizeof codes);
        codes ^= 0x80808080;  // 128 more
        const int place = (block * kBlockWords + word) * kPanelTokens + token;
        __builtin_memcpy(k_codes + 4 * place, &codes, sizeof codes);
      }
      k_scales[block * kPanelTokens + token] = k.scale;
      const KvBlock v = quantize_for_cache(rows.v + i * rows.v_stride + block * kBlock);
      __builtin_memcpy(v_codes + token * rows.head_dim + block * kBlock, v.codes, kBlock);
      v_scales[block * kPanelTokens + token] = v.scale;
    }
  }
}

}  // namespace
}  // namespace imp::cpu

// Quantized keys and values: blocks of 32 along head_dim, each with a scale. A panel has the codes and then the scales,
// float16, as [head_dim / 32][16 tokens]. A word is four neighbouring codes of a token.
//
//   q8_0   K: codes plus 128 as words, [head_dim / 4][16 tokens]; V: codes, [16 tokens][head_dim]
//   rot8   K: as q8_0; V: for each block, four tokens and half of the block 16 such words across tokens, of codes
//   rot4   K: pairs of words, [head_dim / 8][16 tokens], the first word in the low halves of four bytes; V: for each
//          block and four tokens 16 pairs of such words across tokens: element i in the low halves, 16 + i in the high
//
// Two tokens never share a byte.
#pragma once

#include "backend/cpu/kv/code_products.inl"
#include "backend/cpu/kv/kv_rot4.inl"
#include "backend/cpu/kv/kv_storage.inl"

namespace imp::cpu {
namespace {

constexpr int kBlockWords = kKvBlock / 4;

// Adds 128 to each byte, or subtracts it.
inline IntLanes flip_top_bits(IntLanes bytes) {
  return bytes ^ broadcast_int(static_cast<std::int32_t>(0x80808080U));
}

// What quantized types have in common: queries are quantized too, and weights are float32.
struct CodeStorage {
  static constexpr bool kQuantized = true;
  static constexpr int kElements = 1;
  using Queries = const void* const*;  // of ActivationBlocks

  static Lanes store_weights(float* scores, int token, Lanes x) {
    return UnpairedStorage::store_weights(scores, token, x);
  }
};

// Keys of 8 bits.
struct ByteStorage : CodeStorage {
  using Block = Q8Block;
  static constexpr int kBits = 8;
  // Words of K that one load has, as codes plus kKeyOffset.
  static constexpr int kWordsTogether = 1;
  static void load_words(const void* panel, int word, IntLanes (&codes)[1]) {
    codes[0] = load_int(static_cast<const std::int32_t*>(panel) + word * kPanelTokens);
    if constexpr (kKeyOffset == 0) codes[0] = flip_top_bits(codes[0]);
  }
  static void store_words(const Q8Block& from, int block, int token, std::uint8_t* panel) {
    for (int word = 0; word < kBlockWords; ++word) {
      std::uint32_t codes;
      __builtin_memcpy(&codes, from.codes + 4 * word, sizeof codes);
      codes ^= 0x80808080;  // 128 more
      __builtin_memcpy(panel + 4 * ((block * kBlockWords + word) * kPanelTokens + token), &codes, sizeof codes);
    }
  }
};

struct Q8Storage : ByteStorage {
  static constexpr bool kRotated = false;
  // Weights are rounded to integers, as attention_rounded.inl does.
  static constexpr bool kRoundsWeights = false;
  template <int n>
  static void load_values(const std::uint8_t* row, Lanes (&values)[n]) {
    const auto* const codes = reinterpret_cast<const std::int8_t*>(row);
    for (int j = 0; j < n; ++j) values[j] = from_int(load_i8(codes + j * kLanes));
  }
  static void store_values(const Q8Block& from, int block, int token, int head_dim, std::uint8_t* panel) {
    __builtin_memcpy(panel + token * head_dim + block * kKvBlock, from.codes, kKvBlock);
  }
};

struct Rot8Storage : ByteStorage {
  static constexpr bool kRotated = true;
  static constexpr bool kRoundsWeights = true;
  // Four tokens of the two halves of a block.
  static void load_quads(const void* panel, int quad, IntLanes (&codes)[2]) {
    const auto* const words = static_cast<const std::int32_t*>(panel) + 2 * quad * kLanes;
    for (int half = 0; half < 2; ++half) {
      codes[half] = load_int(words + half * kLanes);
      if constexpr (kValueOffset != 0) codes[half] = flip_top_bits(codes[half]);
    }
  }
  static void store_values(const Q8Block& from, int block, int token, int, std::uint8_t* panel) {
    std::uint8_t* const to = panel + (block * (kPanelTokens / 4) + token / 4) * 4 * kKvBlock + token % 4;
    for (int i = 0; i < kKvBlock; ++i) to[4 * i] = static_cast<std::uint8_t>(from.codes[i]);
  }
};

struct Rot4Storage : CodeStorage {
  using Block = Rot4Block;
  static constexpr bool kRotated = true;
  static constexpr int kBits = 4;
  static constexpr bool kRoundsWeights = true;
  static constexpr int kWordsTogether = 2;
  static constexpr ByteLevels kKeyLevels = byte_levels(kKeyOffset), kValueLevels = byte_levels(kValueOffset);
  static void load_words(const void* panel, int word, IntLanes (&codes)[2]) {
    const IntLanes pairs = load_int(static_cast<const std::int32_t*>(panel) + word / 2 * kPanelTokens);
    const IntLanes low = broadcast_int(0x0F0F0F0F);
    codes[0] = lookup_bytes(kKeyLevels.v, pairs & low);
    codes[1] = lookup_bytes(kKeyLevels.v, shift_right_logical<4>(pairs) & low);
  }
  static void store_words(const Rot4Block& from, int block, int token, std::uint8_t* panel) {
    for (int word = 0; word < kBlockWords; word += 2) {
      std::uint32_t low, high;
      __builtin_memcpy(&low, from.codes + 4 * word, sizeof low);
      __builtin_memcpy(&high, from.codes + 4 * word + 4, sizeof high);
      const std::uint32_t pairs = low | high << 4;
      __builtin_memcpy(panel + 4 * ((block * kBlockWords + word) / 2 * kPanelTokens + token), &pairs, sizeof pairs);
    }
  }
  static void load_quads(const void* panel, int quad, IntLanes (&codes)[2]) {
    const IntLanes pairs = load_int(static_cast<const std::int32_t*>(panel) + quad * kLanes);
    const IntLanes low = broadcast_int(0x0F0F0F0F);
    codes[0] = lookup_bytes(kValueLevels.v, pairs & low);
    codes[1] = lookup_bytes(kValueLevels.v, shift_right_logical<4>(pairs) & low);
  }
  static void store_values(const Rot4Block& from, int block, int token, int, std::uint8_t* panel) {
    std::uint8_t* const to = panel + (block * (kPanelTokens / 4) + token / 4) * 4 * kLanes + token % 4;
    for (int i = 0; i < kLanes; ++i) to[4 * i] = static_cast<std::uint8_t>(from.codes[i] | from.codes[kLanes + i] << 4);
  }
};

template <class Storage>
constexpr int code_bytes(int n_elements) {
  return n_elements * Storage::kBits / 8;
}

// Of a panel of K or V.
template <class Storage>
const std::uint16_t* scales_of(const void* panel, int head_dim) {
  const auto* const codes = static_cast<const std::uint8_t*>(panel);
  return reinterpret_cast<const std::uint16_t*>(codes + code_bytes<Storage>(head_dim * kPanelTokens));
}
template <class Storage>
std::uint16_t* scales_of(void* panel, int head_dim) {
  return const_cast<std::uint16_t*>(scales_of<Storage>(static_cast<const void*>(panel), head_dim));
}

// Calls visit(number, 32 elements) for the blocks of a head's row, rotated if the type's rows are.
template <class Storage, class Visit>
[[gnu::always_inline]] inline void for_each_source(const float* row, int head_dim, const Visit& visit) {
  const int run = Storage::kRotated ? rotation_group(head_dim) : kKvBlock;
  float turned[kMaxRotation];
  for (int first = 0; first < head_dim; first += run) {
    const float* from = row + first;
    if constexpr (Storage::kRotated) {
      rotate_group(from, run, turned);
      from = turned;
    }
    for (int d = 0; d < run; d += kKvBlock) visit((first + d) / kKvBlock, from + d);
  }
}

// Calls visit(block of the head, quantized block, token of the panel) for all of them.
template <class Storage, class Visit>
[[gnu::always_inline]] inline void for_each_block(const PanelRows& rows, const Visit& visit) {
  for (int i = 0; i < rows.n_tokens; ++i) {
    for_each_source<Storage>(rows.first + i * rows.stride, rows.head_dim, [&](int block, const float* from) {
      typename Storage::Block quantized;
      quantize_for_cache(from, quantized);
      visit(block, quantized, rows.first_token + i);
    });
  }
}

template <class Storage>
void append_key_codes(const PanelRows& rows, void* panel) {
  std::uint16_t* const scales = scales_of<Storage>(panel, rows.head_dim);
  for_each_block<Storage>(rows, [&](int block, const typename Storage::Block& from, int token) {
    Storage::store_words(from, block, token, static_cast<std::uint8_t*>(panel));
    scales[block * kPanelTokens + token] = from.scale;
  });
}

template <class Storage>
void append_value_codes(const PanelRows& rows, void* panel) {
  std::uint16_t* const scales = scales_of<Storage>(panel, rows.head_dim);
  for_each_block<Storage>(rows, [&](int block, const typename Storage::Block& from, int token) {
    Storage::store_values(from, block, token, rows.head_dim, static_cast<std::uint8_t*>(panel));
    scales[block * kPanelTokens + token] = from.scale;
  });
}

}  // namespace
}  // namespace imp::cpu

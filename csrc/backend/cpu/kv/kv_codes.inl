// Quantized keys and values: blocks of 32 along head_dim, each with a scale. A panel has the codes and then the scales,
// float16, as [head_dim / 32][16 tokens]. A word is four neighbouring codes of a token.
//
//   q8_0   K: codes plus 128 as words, [head_dim / 4][16 tokens]; V: codes, [16 tokens][head_dim]
//   rot8   K: as q8_0; V: for each block and four tokens 32 such words across tokens, of codes
//   rot4   as rot8, with 16 bytes in place of a block's 32 codes: element i in the low half, 16 + i in the high half
//   rot3, rot2   the same with 12 and 8 bytes; see kv_nibbles.inl
//
// Two tokens never share a byte.
#pragma once

#include "backend/cpu/kv/code_products.inl"
#include "backend/cpu/kv/kv_nibbles.inl"
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

// Writes a block of K: its n words, one for four neighbours or more.
template <int n>
inline void store_words(const std::uint8_t (&bytes)[n], int block, int token, std::uint8_t* panel) {
  for (int word = 0; word < n / 4; ++word) {
    __builtin_memcpy(panel + 4 * ((block * (n / 4) + word) * kPanelTokens + token), bytes + 4 * word, 4);
  }
}
// Writes a block of V: each of its bytes beside the same byte of three other tokens.
template <int n>
inline void store_across_tokens(const std::uint8_t (&bytes)[n], int block, int token, std::uint8_t* panel) {
  std::uint8_t* const to = panel + (block * (kPanelTokens / 4) + token / 4) * 4 * n + token % 4;
  for (int i = 0; i < n; ++i) to[4 * i] = bytes[i];
}

// Keys of 8 bits.
struct ByteStorage : CodeStorage {
  using Block = Q8Block;
  static constexpr int kBits = 8;
  // Words of a block of K that one load has, as codes plus kKeyOffset: group, group + 8 / kWordsTogether, and so on.
  static constexpr int kWordsTogether = 1;
  static void load_words(const void* panel, int block, int group, IntLanes (&codes)[1]) {
    codes[0] = load_int(static_cast<const std::int32_t*>(panel) + (block * kBlockWords + group) * kPanelTokens);
    if constexpr (kKeyOffset == 0) codes[0] = flip_top_bits(codes[0]);
  }
  static void store_keys(const Q8Block& from, int block, int token, std::uint8_t* panel) {
    std::uint8_t bytes[kKvBlock];
    for (int i = 0; i < kKvBlock; ++i) bytes[i] = static_cast<std::uint8_t>(from.codes[i] + 128);
    store_words(bytes, block, token, panel);
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
    std::uint8_t bytes[kKvBlock];
    __builtin_memcpy(bytes, from.codes, sizeof bytes);
    store_across_tokens(bytes, block, token, panel);
  }
};

// rot4, rot3 and rot2.
template <int bits>
struct LevelStorage : CodeStorage {
  using Block = LevelBlock<bits>;
  static constexpr bool kRotated = true;
  static constexpr int kBits = bits;
  static constexpr bool kRoundsWeights = true;
  static constexpr int kFirstBytes = bits == 4 ? 16 : 8;
  static constexpr int kWordsTogether = 2 * 16 / kFirstBytes;
  static constexpr NibbleTables kNibbles = nibble_tables<bits>();
  static constexpr NibbleLevels kKeyLevels = nibble_levels<bits>(kKeyOffset);
  static constexpr NibbleLevels kValueLevels = nibble_levels<bits>(kValueOffset);

  static void pack(const Block& from, std::uint8_t (&bytes)[4 * bits]) {
    std::uint8_t nibbles[kKvBlock];
    for (int i = 0; i < kKvBlock; ++i)
      nibbles[i] = bits == 4 ? from.codes[i] : kNibbles.of_code[i / 4 % 4][from.codes[i]];
    const auto put = [&](int i, int stored, std::uint8_t& byte) {
      byte = static_cast<std::uint8_t>(byte | (nibbles[i] & stored) << i / kLanes * 4);
    };
    __builtin_memset(bytes, 0, sizeof bytes);
    for (int first = 0; first < kKvBlock; first += kFirstBytes) {
      for (int i = 0; i < kFirstBytes; ++i) put(first + i, first_bits<bits>(first / 4 % 4), bytes[i]);
    }
    if constexpr (bits == 3) {
      for (int i = 0; i < kKvBlock; ++i) put(i, further_bit<bits>(i / 4 % 4), bytes[kFirstBytes + i % 4]);
    }
  }
  static void store_keys(const Block& from, int block, int token, std::uint8_t* panel) {
    std::uint8_t bytes[4 * bits];
    pack(from, bytes);
    store_words(bytes, block, token, panel);
  }
  static void store_values(const Block& from, int block, int token, int, std::uint8_t* panel) {
    std::uint8_t bytes[4 * bits];
    pack(from, bytes);
    store_across_tokens(bytes, block, token, panel);
  }

  // Both kinds of bytes, or the bits of a nibble that they have.
  struct Stored {
    IntLanes first, further;
  };
  static IntLanes levels_of(const NibbleLevels& levels, Stored bytes, int half, Stored has) {
    if (half == 1) bytes = {shift_right_logical<4>(bytes.first), shift_right_logical<4>(bytes.further)};
    IntLanes nibbles = bytes.first & has.first;
    if constexpr (bits == 3) nibbles = nibbles | (bytes.further & has.further);
    return lookup_bytes(levels.v, nibbles);
  }
  static void load_words(const void* panel, int block, int group, IntLanes (&codes)[kWordsTogether]) {
    const auto* const words = static_cast<const std::int32_t*>(panel) + block * bits * kPanelTokens;
    const Stored bytes = {load_int(words + group * kPanelTokens),
                          bits == 3 ? load_int(words + 2 * kPanelTokens) : broadcast_int(0)};
    for (int i = 0; i < kWordsTogether; ++i) {
      const int place = (group + i * kBlockWords / kWordsTogether) % 4;
      const Stored has = {broadcast_int(first_bits<bits>(place) * 0x01010101),
                          broadcast_int(further_bit<bits>(place) * 0x01010101)};
      codes[i] = levels_of(kKeyLevels, bytes, 2 * i / kWordsTogether, has);
    }
  }
  static void load_quads(const void* panel, int quad, IntLanes (&codes)[2]) {
    const auto* const words = static_cast<const std::int32_t*>(panel) + quad * 4 * bits;
    const Stored bytes = {load_repeated<kFirstBytes>(words),
                          bits == 3 ? load_repeated<4>(words + kFirstBytes) : broadcast_int(0)};
    const Stored has = {load_int(kNibbles.first), load_int(kNibbles.further)};
    for (int half = 0; half < 2; ++half) codes[half] = levels_of(kValueLevels, bytes, half, has);
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
    Storage::store_keys(from, block, token, static_cast<std::uint8_t*>(panel));
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

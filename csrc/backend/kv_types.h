// The types of cached keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace imp {

// In the order of the table of traits, and of the CPU's ops.
enum class KvType : std::uint8_t { f32, f16, bf16, q8_0, rot8, rot4, rot3, rot2 };
inline constexpr int kKvTypes = 8;

// Elements along head_dim that share a scale.
inline constexpr int kKvBlock = 32;

struct KvTypeTraits {
  std::string_view name;  // in imp.conf, replies and tests
  int bits_per_block;     // of kKvBlock elements, with their scale
  bool is_quantized;      // head_dim must be a multiple of kKvBlock
  // Rows are multiplied by an orthogonal matrix before they are quantized. Rotated rows have few outliers.
  bool is_rotated;

  std::size_t row_bytes(int n_elements) const noexcept {
    return static_cast<std::size_t>(n_elements) * static_cast<std::size_t>(bits_per_block / 8) / kKvBlock;
  }
};

std::span<const KvTypeTraits> all_kv_types() noexcept;
const KvTypeTraits& traits(KvType type) noexcept;

// The types of one layer's keys and of its values.
struct KvTypes {
  KvType k = KvType::f16;
  KvType v = KvType::f16;
  friend bool operator==(const KvTypes&, const KvTypes&) = default;
};

// Of a drafter's cache, which is small: rot8 in place of smaller types, since worse guesses cost more than it saves.
KvTypes of_drafter(KvTypes types) noexcept;

// "q8_0" for both, or "q8_0/rot4" for keys and values.
std::optional<KvTypes> kv_types_from(std::string_view word) noexcept;
std::string text_of(KvTypes types);
// "f32, f16, …, or two of them as K/V": for messages.
std::string kv_type_names();

}  // namespace imp

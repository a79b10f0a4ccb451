// The table of types, and their names.
#include "backend/kv_types.h"

#include <algorithm>
#include <array>

namespace imp {
namespace {

constexpr std::array<KvTypeTraits, kKvTypes> kTypes = {{
    {.name = "f32", .bits_per_block = 1024, .is_quantized = false, .is_rotated = false},
    {.name = "f16", .bits_per_block = 512, .is_quantized = false, .is_rotated = false},
    {.name = "bf16", .bits_per_block = 512, .is_quantized = false, .is_rotated = false},
    {.name = "q8_0", .bits_per_block = 272, .is_quantized = true, .is_rotated = false},
    {.name = "rot8", .bits_per_block = 272, .is_quantized = true, .is_rotated = true},
    {.name = "rot4", .bits_per_block = 144, .is_quantized = true, .is_rotated = true},
    {.name = "rot3", .bits_per_block = 112, .is_quantized = true, .is_rotated = true},
    {.name = "rot2", .bits_per_block = 80, .is_quantized = true, .is_rotated = true},
}};

std::optional<KvType> kv_type_from(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kTypes, name, &KvTypeTraits::name);
  if (found == kTypes.end()) return std::nullopt;
  return static_cast<KvType>(found - kTypes.begin());
}

}  // namespace

std::span<const KvTypeTraits> all_kv_types() noexcept {
  return kTypes;
}

const KvTypeTraits& traits(KvType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)];
}

KvTypes of_drafter(KvTypes types) noexcept {
  for (KvType* each : {&types.k, &types.v}) {
    if (traits(*each).bits_per_block < traits(KvType::rot8).bits_per_block) *each = KvType::rot8;
  }
  return types;
}

std::optional<KvTypes> kv_types_from(std::string_view word) noexcept {
  const std::size_t slash = word.find('/');
  const auto k = kv_type_from(word.substr(0, slash));
  const auto v = slash == std::string_view::npos ? k : kv_type_from(word.substr(slash + 1));
  if (!k || !v) return std::nullopt;
  return KvTypes{*k, *v};
}

std::string text_of(KvTypes types) {
  std::string text(traits(types.k).name);
  if (types.v != types.k) text.append("/").append(traits(types.v).name);
  return text;
}

std::string kv_type_names() {
  std::string names;
  for (const KvTypeTraits& type : kTypes) names.append(type.name).append(", ");
  return names + "or two of them as K/V";
}

}  // namespace imp

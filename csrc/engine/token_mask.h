// Sets of allowed tokens: a bit per token id, lowest bit of word 0 first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace imp {

using TokenMask = std::vector<std::uint32_t>;

inline std::size_t mask_words(int vocab_size) {
  return (static_cast<std::size_t>(vocab_size) + 31) / 32;
}

// Throws InvalidArgument(FIELD_INVALID) unless the mask has a word for each 32 tokens, some bit set, and none at or
// above vocab_size.
void validate_mask(std::span<const std::uint32_t> mask, int vocab_size, const std::string& field);

// All tokens but those named.
TokenMask mask_without(std::span<const std::int32_t> tokens, int vocab_size);

}  // namespace imp

// Sets of allowed tokens: a bit per token id, lowest bit of word 0 first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace imp {

using TokenMask = std::vector<std::uint32_t>;

// Throws InvalidArgument(FIELD_INVALID) unless the mask has a word for each 32 ids below vocab_size, some bit set, and
// none at or above n_tokens.
void validate_mask(std::span<const std::uint32_t> mask, int vocab_size, int n_tokens, const std::string& field);

bool allows(std::span<const std::uint32_t> mask, std::int32_t token) noexcept;

// What the sampler reads: null for the empty mask, which allows all tokens.
inline const std::uint32_t* bits(const TokenMask& mask) noexcept {
  return mask.empty() ? nullptr : mask.data();
}

// All tokens except the given ones.
TokenMask mask_without(std::span<const std::int32_t> tokens, int vocab_size);

}  // namespace imp

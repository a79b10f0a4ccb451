// Makes and checks token masks.
#include "engine/data/token_mask.h"

#include <algorithm>

#include "backend/sampler.h"
#include "base/error.h"

namespace imp {
namespace {

// The bits of the last word that belong to the vocabulary.
std::uint32_t last_bits(int vocab_size) {
  const auto used = static_cast<unsigned>(vocab_size) % 32U;
  return used == 0 ? ~0U : (1U << used) - 1U;
}

// Whether a bit is set at or above `n_tokens`.
bool reaches_beyond(std::span<const std::uint32_t> mask, int n_tokens) {
  const std::size_t n_whole = mask_words(n_tokens);
  if ((mask[n_whole - 1] & ~last_bits(n_tokens)) != 0) return true;
  return std::ranges::any_of(mask.subspan(n_whole), [](std::uint32_t word) { return word != 0; });
}

}  // namespace

void validate_mask(std::span<const std::uint32_t> mask, int vocab_size, int n_tokens, const std::string& field) {
  const auto refuse = [&field](const std::string& what) { throw FieldInvalid(field, what); };
  if (mask.size() != mask_words(vocab_size)) {
    refuse(std::to_string(mask.size()) + " words, expected " + std::to_string(mask_words(vocab_size)));
  }
  const auto is_set = [](std::uint32_t word) { return word != 0; };
  if (std::ranges::none_of(mask, is_set)) refuse("no bit is set, expected at least one token");
  if (reaches_beyond(mask, n_tokens)) {
    refuse("a bit is set at or above " + std::to_string(n_tokens) + ", expected only token ids below it");
  }
}

bool allows(std::span<const std::uint32_t> mask, std::int32_t token) noexcept {
  const auto id = static_cast<unsigned>(token);
  return id / 32U < mask.size() && ((mask[id / 32U] >> (id % 32U)) & 1U) != 0;
}

TokenMask mask_without(std::span<const std::int32_t> tokens, int vocab_size) {
  TokenMask mask(mask_words(vocab_size), ~0U);
  if (!mask.empty()) mask.back() = last_bits(vocab_size);
  for (const std::int32_t token : tokens) {
    const auto id = static_cast<unsigned>(token);
    mask[id / 32U] &= ~(1U << (id % 32U));
  }
  return mask;
}

}  // namespace imp

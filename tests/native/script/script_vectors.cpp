#include "native/script/script_vectors.h"

#include <limits>

#include "base/error.h"
#include "native/script/mix.h"

namespace imp::testing {

std::vector<std::int32_t> types_of(const Batch& batch, const SequenceRows& sequence) {
  if (batch.types.empty()) return {};
  IMP_CHECK(batch.types.size() == batch.tokens.size());
  const auto types =
      batch.types.subspan(static_cast<std::size_t>(sequence.first_row), static_cast<std::size_t>(sequence.n_rows));
  return {types.begin(), types.end()};
}

void TextHash::add(std::int32_t token, std::int32_t type) noexcept {
  bits = mix(bits ^ (static_cast<std::uint64_t>(token) + 1) ^ static_cast<std::uint64_t>(type) << 40U);
}

void MadeVectors::clear() noexcept {
  n_rows_ = 0;
  values_.clear();
}

void MadeVectors::add(const TextHash& text, int width) {
  ++n_rows_;
  width_ = width;
  for (int i = 0; i < width; ++i) {
    // In [-4, 4). 24 bits, so that every value is exact as a float.
    const std::uint64_t bits = mix(text.bits + static_cast<std::uint64_t>(i)) >> 40U;
    values_.push_back(text.is_zero ? 0 : static_cast<float>(bits) * (1.0F / (1U << 21U)) - 4);
  }
  if (text.is_broken) values_.back() = std::numeric_limits<float>::quiet_NaN();
}

Rows MadeVectors::rows() const {
  return {.data = const_cast<float*>(values_.data()), .n_rows = n_rows_, .width = width_, .stride = width_};
}

}  // namespace imp::testing

// Appends padding rows to a batch.
#include "backend/cuda/padded_batch.h"

#include <algorithm>
#include <bit>

namespace imp::cuda {

int bucket_of(int n, int most) noexcept {
  return std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1)))), std::max(n, most));
}

void PaddedBatch::reserve(int max_rows) {
  const auto n = static_cast<std::size_t>(max_rows);
  tokens_.reserve(n);
  positions_.reserve(n);
  logits_rows_.reserve(n);
  sequences_.reserve(n);
}

Batch PaddedBatch::pad(const Batch& batch, int max_rows, std::int32_t spare_block) {
  spare_block_ = spare_block;
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  positions_.assign(batch.positions.begin(), batch.positions.end());
  sequences_.assign(batch.sequences.begin(), batch.sequences.end());
  logits_rows_.assign(batch.logits_rows.begin(), batch.logits_rows.end());
  const int n = bucket_of(static_cast<int>(tokens_.size()), max_rows);
  for (int row = static_cast<int>(tokens_.size()); row < n; ++row) {
    tokens_.push_back(0);
    positions_.push_back(0);
    sequences_.push_back({.first_row = row, .n_rows = 1, .first_position = 0, .blocks = {&spare_block_, 1}});
    if (!batch.logits_rows.empty()) logits_rows_.push_back(row);
  }
  return {tokens_, positions_, sequences_, logits_rows_};
}

}  // namespace imp::cuda

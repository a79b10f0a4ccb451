// A batch of one row for each sequence, filled up to one of a few sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/batch.h"

namespace imp::cuda {

// The sizes that batches of n rows are filled up to: powers of two, but never more than `most`.
int bucket_of(int n, int most) noexcept;

class PaddedBatch {
 public:
  void reserve(int max_rows);
  // To at most max_rows, where it has no more. Valid until the next call. The rows behind the batch's own are of token
  // 0 at position 0, each a sequence that holds the spare block.
  Batch pad(const Batch& batch, int max_rows, std::int32_t spare_block);

 private:
  std::int32_t spare_block_ = 0;
  std::vector<std::int32_t> tokens_, positions_, logits_rows_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace imp::cuda

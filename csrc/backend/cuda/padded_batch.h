// Pads a decode batch to one of a few sizes, so that few graphs serve all sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/batch.h"

namespace imp::cuda {

// The sizes that batches of n rows are padded to: powers of two, but at most `most`.
int bucket_of(int n, int most) noexcept;

class PaddedBatch {
 public:
  void reserve(int max_rows);
  // Pads to at most max_rows. Valid until the next call. Padding rows have token 0 at position 0, each in a sequence
  // that holds the spare block.
  Batch pad(const Batch& batch, int max_rows, std::int32_t spare_block);

 private:
  std::int32_t spare_block_ = 0;
  std::vector<std::int32_t> tokens_, positions_, logits_rows_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace imp::cuda

// Attention over the paged cache, and writing to it: the host's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/attention.h"
#include "backend/cuda/cuda_kv_pool.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/stream.h"
#include "backend/rows.h"

namespace imp::cuda {

class Attention {
 public:
  explicit Attention(Stream& stream) : stream_(stream) {}

  // For batches of up to max_rows rows of layers no larger than `largest`; may be called again, and never shrinks.
  // Throws InvalidArgument for heads that it cannot do.
  void reserve(int max_rows, int max_context, const AttentionParams& largest);
  std::size_t scratch_bytes(int max_rows, int max_context, const AttentionParams& largest) const;
  std::size_t scratch_bytes() const noexcept;
#if IMP_TESTING
  void fill_scratch(std::uint8_t value);
#endif

  void append(const CudaKvPool& pool, int layer, const SequencesOnDevice& sequences, Rows k, Rows v);
  // `sequences` are what `on_device` holds. Where every sequence has one row, the shape of what is launched depends on
  // their number alone, so that it can be captured and done again for others of any length.
  void run(const CudaKvPool& pool, int layer, std::span<const SequenceRows> sequences,
           const SequencesOnDevice& on_device, const AttentionParams& params, Rows q, Rows out);

 private:
  Stream& stream_;
};

}  // namespace imp::cuda

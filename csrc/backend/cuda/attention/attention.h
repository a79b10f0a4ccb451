// Attention over the paged cache: the host's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/attention.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/cuda_kv_pool.h"
#include "backend/gemm.h"
#include "backend/rows.h"

namespace imp::cuda {

// Keys are taken in tiles of 64 and splits of 256, from position 0 on, and a split's tiles and then the splits become
// one in ascending order. How work is cut decides no bit.
class Attention {
 public:
  Attention(Stream& stream, const DeviceCaps& caps) : stream_(stream), caps_(caps) {}

  // Throws InvalidArgument for a cache that this GPU's blocks have no room for.
  void require_served(const KvGeometry& cache) const;

  // For layers no larger than `largest`; may be called again, and never shrinks. Throws InvalidArgument for heads that
  // it cannot do. Batches of more sequences, and longer ones, are only slower.
  void reserve(int max_sequences, int max_context, const AttentionParams& largest);
  std::size_t scratch_bytes(int max_sequences, int max_context, const AttentionParams& largest) const;
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }

  // `sequences` are what `on_device` holds. Where every sequence has one row, the shape of what is launched depends on
  // their number alone, so that it can be captured and done again for others of any length.
  void run(const CudaKvPool& pool, int layer, std::span<const SequenceRows> sequences,
           const SequencesOnDevice& on_device, const AttentionParams& params, Rows q, Rows out);

 private:
  friend struct TestAccess;
  // The greatest of what was asked for.
  struct Reserved {
    int sequences = 0;
    int context = 0;
    int heads = 0;
    int head_dim = 0;

    std::size_t state_bytes() const;
    // Splits that are worked on apart: those of all sequences, or as many as their states may take memory.
    int n_states() const;
    std::size_t n_bytes() const { return static_cast<std::size_t>(n_states()) * state_bytes(); }
  };
  static void require_served(const AttentionParams& params);

  Stream& stream_;
  const DeviceCaps& caps_;
  Reserved reserved_;
  std::size_t scratch_bytes_ = 0;
  std::shared_ptr<std::byte> scratch_;
};

}  // namespace imp::cuda

// Attention over the paged cache: host code.
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

// Keys are processed in tiles of 64 and splits of 256 from position 0 on. A split's tiles, and then the splits, are
// merged in ascending order. How work is divided changes no bit.
class Attention {
 public:
  Attention(Stream& stream, const DeviceCaps& caps) : stream_(stream), caps_(caps) {}

  // Throws InvalidArgument if this GPU's shared memory is too small for the cache's type.
  void require_supported(const KvGeometry& cache) const;

  // For layers up to `largest`. May be called again; never shrinks. Throws InvalidArgument for unsupported heads.
  // Batches of more or longer sequences are only slower.
  void reserve(int max_sequences, int max_context, const AttentionParams& largest);
  std::size_t scratch_bytes(int max_sequences, int max_context, const AttentionParams& largest) const;
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }

  // `on_device` holds `sequences`. If every sequence has one row, the shape of the launch depends only on their number,
  // so that a captured graph serves sequences of any length.
  void run(const CudaKvPool& pool, int layer, std::span<const SequenceRows> sequences,
           const SequencesOnDevice& on_device, const AttentionParams& params, Rows q, Rows out);

 private:
  friend struct TestAccess;
  // The maximum of all requests.
  struct Reserved {
    int sequences = 0;
    int context = 0;
    int heads = 0;
    int head_dim = 0;

    std::size_t state_bytes() const;
    // Splits that are processed in parallel: those of all sequences, or as many as memory allows states for.
    int n_states() const;
    std::size_t n_bytes() const { return static_cast<std::size_t>(n_states()) * state_bytes(); }
  };
  static void require_supported(const AttentionParams& params);

  Stream& stream_;
  const DeviceCaps& caps_;
  Reserved reserved_;
  std::size_t scratch_bytes_ = 0;
  std::shared_ptr<std::byte> scratch_;
};

}  // namespace imp::cuda

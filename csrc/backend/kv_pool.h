// The paged KV cache: keys and values of all sequences in blocks of a fixed number of tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace imp {

struct KvGeometry {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 16;  // a multiple of 16, a divisor of 256
  int n_blocks = 0;
  DType dtype = DType::F16;  // F32, F16, BF16 or Q8_0
};

// Storage made by a Backend and only passed back to it. The engine tracks who owns which block.
class KvPool {
 public:
  virtual ~KvPool() = default;
  virtual const KvGeometry& geometry() const noexcept = 0;
  virtual std::size_t n_bytes() const noexcept = 0;
};

}  // namespace imp

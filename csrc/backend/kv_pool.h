// The device memory of sequences: the paged KV cache, with keys and values in blocks of a fixed number of tokens, and
// slots of recurrent state for models with linear attention. A slot holds the state of one sequence at one position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/kv_types.h"

namespace imp {

// The recurrent state of the layers with linear attention. A slot is written once, as a whole, and then only read: a
// step reads the state of a sequence from one slot and writes the new one to another. So sequences can share slots, and
// a failed step changes no state.
struct StateGeometry {
  int n_layers = 0;  // 0: the model has no such layers
  // The inputs of the causal convolution before the next token, [conv_taps, conv_width] floats.
  int conv_taps = 0;
  int conv_width = 0;
  // A matrix [key_dim, value_dim] of floats for each head.
  int n_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int n_slots = 0;

  std::size_t slot_bytes() const noexcept {
    const auto n = [](int value) { return static_cast<std::size_t>(value); };
    return n(n_layers) * (n(conv_taps) * n(conv_width) + n(n_heads) * n(key_dim) * n(value_dim)) * sizeof(float);
  }
};

// The keys and values of one layer.
struct KvLayer {
  int n_kv_heads = 0;
  int head_dim = 0;
  KvTypes types = {};
  friend bool operator==(const KvLayer&, const KvLayer&) = default;
};

struct KvGeometry {
  std::vector<KvLayer> layers = {};
  int block_tokens = 16;  // a multiple of 16, a divisor of 256
  int n_blocks = 0;
  StateGeometry state = {};

  int n_layers() const noexcept { return static_cast<int>(layers.size()); }
  const KvLayer& layer(int i) const noexcept { return layers[static_cast<std::size_t>(i)]; }
  bool has_equal_layers() const noexcept {
    return std::ranges::all_of(layers, [&](const KvLayer& each) { return each == layers.front(); });
  }
};

inline std::vector<KvLayer> equal_layers(int n, KvLayer layer) {
  return std::vector<KvLayer>(static_cast<std::size_t>(n), layer);
}

// Storage made by a Backend and only passed back to it. The engine tracks who owns which block.
class KvPool {
 public:
  virtual ~KvPool() = default;
  virtual const KvGeometry& geometry() const noexcept = 0;
  virtual std::size_t n_bytes() const noexcept = 0;
};

}  // namespace imp

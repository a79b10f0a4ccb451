// Linear attention by the gated delta rule ("Gated Delta Networks"), as data.
#pragma once

#include "backend/rows.h"

namespace imp {

class Vector;

// Each value head has a state S [key_dim, value_dim] and uses the q and k of a key head. A row multiplies S by the
// head's decay, then adds k · beta · (v - Sᵀ·k), and yields Sᵀ·q. Before that, q and k are divided by their
// lengths, and q also by sqrt(key_dim).
struct DeltaRule {
  int n_key_heads = 0;
  int n_value_heads = 0;  // a multiple of n_key_heads
  int key_dim = 0;
  int value_dim = 0;
  // Value head h uses key head h % n_key_heads. Otherwise, consecutive value heads share a key head.
  bool is_interleaved = false;

  int key_head_of(int value_head) const noexcept {
    return is_interleaved ? value_head % n_key_heads : value_head / (n_value_heads / n_key_heads);
  }
  int key_width() const noexcept { return n_key_heads * key_dim; }
  int value_width() const noexcept { return n_value_heads * value_dim; }
  int width() const noexcept { return 2 * key_width() + value_width(); }
};

inline constexpr int kMaxDeltaKeyDim = 512;
inline constexpr int kMaxConvTaps = 16;              // the row itself included
inline constexpr float kDeltaLengthEpsilon = 1e-6F;  // added to the squared lengths of q and k

// The rows of the batch. The op overwrites qkv, alpha and beta.
struct DeltaRows {
  Rows qkv;                             // [n, width()]: q and k of all key heads, v of all value heads
  Rows alpha;                           // [n, n_value_heads]: decay = exp(decay_rate · softplus(alpha + dt_bias))
  Rows beta;                            // [n, n_value_heads]: beta = sigmoid of this
  const Vector* decay_rates = nullptr;  // [n_value_heads], negative
  const Vector* dt_bias = nullptr;      // [n_value_heads]
};

}  // namespace imp

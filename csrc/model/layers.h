// The weights of a decoder, layer by layer, in the order they are used.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace imp {

using Matrix = std::unique_ptr<Linear>;  // [n, k]: k inputs, n outputs
using Values = std::unique_ptr<Vector>;
using Stack = std::vector<Matrix>;  // one per expert

// A norm of the residual stream.
struct NormWeights {
  Values weight;  // [hidden]
  Values bias;
};

// Null if the configuration has no such weight.
struct LayerWeights {
  NormWeights attention_norm;
  Matrix q;  // [n_heads · head_dim, hidden]
  Matrix k;  // [n_kv_heads · head_dim, hidden]
  Matrix v;  // [n_kv_heads · head_dim, hidden]
  Values q_bias, k_bias, v_bias;
  Values q_norm, k_norm;  // [head_dim], or as wide as q and k
  Matrix output;          // [hidden, n_heads · head_dim]
  Values output_bias;
  NormWeights post_attention_norm;

  NormWeights ffn_norm;
  Matrix gate, up;  // [ffn, hidden]
  Values gate_bias, up_bias;
  Matrix down;  // [hidden, ffn]
  Values down_bias;
  Matrix router;                   // [n_experts, hidden]
  Stack expert_gates, expert_ups;  // of [expert ffn, hidden]
  Stack expert_downs;              // of [hidden, expert ffn]
  Matrix shared_router;            // [1, hidden]
  Matrix shared_gate, shared_up;   // [shared ffn, hidden]
  Matrix shared_down;              // [hidden, shared ffn]
  NormWeights post_ffn_norm;
};

struct Weights {
  Matrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Matrix head;  // [vocab, hidden]; null if it is the embedding (tied)

  const Linear& output_head() const { return head ? *head : *embedding; }
};

}  // namespace imp

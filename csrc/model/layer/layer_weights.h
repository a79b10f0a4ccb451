// The weights of a layer, in the order they are used.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/config/model_config.h"

namespace imp {

using Matrix = std::unique_ptr<Linear>;  // [n, k]: k inputs, n outputs
using Values = std::unique_ptr<Vector>;
using Stack = std::vector<Matrix>;  // one per expert

// A norm of the residual stream.
struct NormWeights {
  Values weight;  // [hidden]
  Values bias;
};

struct BiasedMatrix {
  Matrix weight;
  Values bias;
};

// Null if the configuration has no such weight.
struct LayerWeights {
  NormWeights attention_norm;
  // In layers of linear attention q, k and v are as wide as DeltaRule says.
  Matrix q;  // [n_heads · head_dim, hidden]
  Matrix k;  // [n_kv_heads · head_dim, hidden]
  Matrix v;  // [n_kv_heads · head_dim, hidden]
  Values q_bias, k_bias, v_bias;
  Values q_norm, k_norm;  // [head_dim], or as wide as q and k
  Values sinks;           // [n_heads]
  Matrix output_gate;     // as q; of linear attention as v
  Matrix output;          // [hidden, n_heads · head_dim]
  Values output_bias;
  NormWeights post_attention_norm;

  // Of linear attention.
  Matrix alpha, beta;           // [value heads, hidden]
  Values decay_rates, dt_bias;  // [value heads]
  Values conv;                  // [taps, width of q, k and v]
  Values linear_norm;           // [value_dim], of each head of its output

  // Of layers with experts and a dense feed-forward.
  NormWeights post_dense_norm;
  NormWeights router_norm;
  NormWeights expert_norm;
  NormWeights post_expert_norm;

  NormWeights ffn_norm;
  Matrix gate, up;  // [ffn, hidden]
  Values gate_bias, up_bias;
  Matrix down;  // [hidden, ffn]
  Values down_bias;
  Matrix router;  // [n_experts, hidden]
  Values router_bias;
  Stack expert_gates, expert_ups;                                   // of [expert ffn, hidden]
  Stack expert_downs;                                               // of [hidden, expert ffn]
  Values expert_gate_biases, expert_up_biases, expert_down_biases;  // of all experts
  Values expert_scales;                                             // [n_experts]
  Matrix shared_router;                                             // [1, hidden]
  Matrix shared_gate, shared_up;                                    // [shared ffn, hidden]
  Matrix shared_down;                                               // [hidden, shared ffn]
  NormWeights post_ffn_norm;

  // Of the layer's own embedding of a token.
  Matrix embedding_gate;    // [size, hidden]
  Matrix embedding_output;  // [hidden, size]
  NormWeights post_embedding_norm;
};

// What a layer is computed from.
struct Layer {
  const LayerConfig& config;
  const LayerWeights& weights;
};

}  // namespace imp

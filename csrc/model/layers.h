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
  // Of linear attention: q, k and v of DeltaRule.
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

struct Weights {
  Matrix embedding;  // [vocab, hidden]
  // Of the embeddings of layers, for all layers side by side.
  Matrix layer_table;            // [vocab, n_layers · size]
  Matrix layer_projection;       // [n_layers · size, hidden]
  Values layer_projection_norm;  // [size]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Matrix head;  // [vocab, hidden]; null if it is the embedding (tied)

  const Linear& output_head() const { return head ? *head : *embedding; }
};

}  // namespace imp

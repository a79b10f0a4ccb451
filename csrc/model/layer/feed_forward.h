// The feed-forward of a layer: dense, experts, or both.
#pragma once

#include "backend/backend.h"
#include "model/config/model_config.h"
#include "model/layer/layer_weights.h"
#include "model/layer/workspace.h"

namespace imp {

// The activations between the products.
struct FeedForwardRows {
  Rows gate;  // [rows, ffn], of layers without experts
  // with clipped products
  Rows up;       // [rows, ffn]
  Rows bounded;  // [rows, widest input of a product]: also of attention's
  // of layers with experts
  Rows expert_gate, expert_up;  // [grouped rows, expert ffn]
  Rows scores;                  // [rows, n_experts]
  ExpertRows routed;            // rows
  Rows grouped;                 // [grouped rows, hidden]
  // with an expert that all rows share
  Rows shared_score;   // [rows, 1], if it is gated
  Rows shared_gate;    // [rows, shared ffn]
  Rows shared;         // [rows, hidden]
  Rows expert_branch;  // [rows, hidden], if there is also a dense branch

  void declare(const ModelConfig& config, Workspace& workspace);
};

// For all layers of a configuration.
class FeedForward {
 public:
  // The configuration, the backend and the rows outlive it.
  FeedForward(const ModelConfig& config, Backend& backend, const FeedForwardRows& rows)
      : config_(config), backend_(backend), rows_(rows) {}

  // The product that reads the input: the norm before it may prepare its rows. Null if the input is clipped first.
  const Linear* first_product(const Layer& layer) const noexcept;

  // From `input` to `out`, [rows, hidden] each. A layer whose dense branch is beside its experts normalizes `stream`
  // again for the experts, to `input`.
  void run(const Layer& layer, Rows stream, Rows input, Rows out);

 private:
  void dense(const Layer& layer, Rows input, Rows out);
  void clipped_dense(const Layer& layer, const LayerClips& clips, Rows input, Rows out);
  void experts(const LayerWeights& w, Rows input, Rows out);
  void dense_and_experts(const Layer& layer, Rows stream, Rows input, Rows out);
  void route(const LayerWeights& w, Rows input);
  void mix_experts(const LayerWeights& w, Rows input, Rows out);

  const ModelConfig& config_;
  Backend& backend_;
  const FeedForwardRows& rows_;
};

}  // namespace imp

// The feed-forward of a layer: dense, experts, or both.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/layers.h"
#include "model/model_config.h"

namespace imp {

// Has the activations between the products, for all layers of a configuration.
class FeedForward {
 public:
  // The configuration and the backend outlive it.
  FeedForward(const ModelConfig& config, Backend& backend, int max_rows);

  // The product that reads the input: the norm before it may prepare its rows.
  const Linear* first_product(const LayerWeights& w, const LayerConfig& layer) const noexcept;

  // From `input` to `out`, [rows, hidden] each. A layer whose dense branch is beside its experts normalizes `stream`
  // again for the experts, to `input`.
  void run(const LayerWeights& w, const LayerConfig& layer, Rows stream, Rows input, Rows out);

 private:
  void take_rows(int n);
  void dense(const LayerWeights& w, const LayerConfig& layer, Rows input, Rows out);
  void experts(const LayerWeights& w, Rows input, Rows out);
  void dense_and_experts(const LayerWeights& w, const LayerConfig& layer, Rows stream, Rows input, Rows out);
  void route(const LayerWeights& w, Rows input);
  void mix_experts(const LayerWeights& w, Rows input, Rows out);

  const ModelConfig& config_;
  Backend& backend_;
  Rows gate_;  // [rows, ffn], of layers without experts
  // of layers with experts
  Rows expert_gate_, expert_up_;  // [grouped rows, expert ffn]
  Rows scores_;                   // [rows, n_experts]
  ExpertRows routed_;             // rows
  Rows grouped_;                  // [grouped rows, hidden]
  // with an expert that all rows share
  Rows shared_score_;   // [rows, 1], if it is gated
  Rows shared_gate_;    // [rows, shared ffn]
  Rows shared_;         // [rows, hidden]
  Rows expert_branch_;  // [rows, hidden], if there is also a dense branch
};

// Bytes of its activations.
std::uint64_t feed_forward_bytes(const ModelConfig& config, int max_rows);

}  // namespace imp

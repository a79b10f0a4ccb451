// The decoder-only transformer of all architectures: they differ only in the configuration.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/backend.h"
#include "model/forward_pass.h"
#include "model/layers.h"
#include "model/model.h"

namespace imp {

// One thread at a time may use it. A model may have several decoders, and must outlive them, as must the backend.
class Decoder final : public ForwardPass, private StepBody {
 public:
  // Allocates all activations and reserves the backend's scratch. Throws ResourceExhausted(NO_MEMORY), and ModelError
  // if the backend cannot run such a model.
  Decoder(const Model& model, Backend& backend, const ForwardLimits& limits);

  int vocab_size() const noexcept override { return config_.vocab_size; }
  const ForwardLimits& limits() const noexcept override { return limits_; }
  KvGeometry kv_geometry(int n_blocks) const override;
  Rows forward(const Batch& batch, KvPool& pool) override;

 private:
  int max_rows() const noexcept override { return std::min(limits_.max_rows, limits_.max_logits_rows); }
  void run(const Batch& batch, KvPool& pool) override;
  void make_workspace();
  Norm norm(const Values& weight) const;
  Norm norm(const NormWeights& weights, const Linear* reader) const;
  void normalize(Rows x, const NormWeights& weights, const Linear* reader, Rows out);
  void embed(const Batch& batch);  // to x, normalized for the first layer
  // Both compute `branch` from layer_input(), add it to x, and write the normalized x for the next op to `normed`.
  void attention(const Batch& batch, KvPool& pool, int layer);
  void feed_forward(int layer);
  bool reads_stream() const;  // attention and feed-forward read x itself, not `normed`
  Rows layer_input() const;
  void rotate_and_append(const Batch& batch, KvPool& pool, int layer, const LayerWeights& w);
  void finish_branch(const NormWeights& post_norm);
  // Adds `branch` to x and normalizes x for the reader.
  void add_branch(const NormWeights& next_norm, const Linear* reader);
  const Linear* first_of_feed_forward(int layer) const;  // the product that reads its input
  // From layer_input() to `branch`.
  void dense(const LayerWeights& w, const LayerConfig& layer);
  void experts(const LayerWeights& w);
  void route(const LayerWeights& w);
  void head(const Batch& batch);  // to `logits`

  const ModelConfig& config_;
  const Weights& weights_;
  const std::vector<Rope>& ropes_;
  Backend& backend_;
  ForwardLimits limits_;
  int kv_block_tokens_;

  // Activations of a step. The batch determines the number of rows in use.
  Rows x_;         // [rows, hidden]: the residual stream
  Rows normed_;    // [rows, hidden]
  Rows q_;         // [rows, n_heads · head_dim]
  Rows k_, v_;     // [rows, n_kv_heads · head_dim]
  Rows attended_;  // [rows, n_heads · head_dim]
  Rows gate_;      // [rows, ffn], of layers without experts
  // of layers with experts
  Rows expert_gate_, expert_up_;  // [grouped rows, expert ffn]
  Rows scores_;                   // [rows, n_experts]
  ExpertRows routed_;             // rows
  Rows grouped_;                  // [grouped rows, hidden]
  // with an expert that all rows share
  Rows shared_score_;         // [rows, 1], if it is gated
  Rows shared_gate_;          // [rows, shared ffn]
  Rows shared_;               // [rows, hidden]
  Rows branch_;               // [rows, hidden]: what attention or the feed-forward adds to x
  Rows last_;                 // [logits rows, hidden]
  Rows logits_;               // [logits rows, vocab]
  std::vector<Rows> angles_;  // of each rope [rows, dims]
};

// What a decoder needs from its backend, apart from weights.
WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits);

// Bytes of a decoder's activations, apart from logits.
std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits);

}  // namespace imp

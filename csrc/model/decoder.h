// The decoder-only transformer of all architectures: they differ only in the configuration.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/backend.h"
#include "model/feed_forward.h"
#include "model/forward_pass.h"
#include "model/layers.h"
#include "model/model.h"

namespace imp {

// One thread at a time may use it. A model may have several decoders, and must outlive them, as must the backend.
class Decoder final : public ForwardPass, private StepBody {
 public:
  // Allocates all activations and reserves the backend's scratch. Throws ResourceExhausted(NO_MEMORY), and ModelError
  // if the backend cannot run such a model.
  Decoder(const Model& model, Backend& backend, const ForwardLimits& limits, HiddenRows kept = {});

  int vocab_size() const noexcept override { return config_.vocab_size; }
  const ForwardLimits& limits() const noexcept override { return limits_; }
  KvGeometry kv_geometry(int n_blocks, int n_state_slots) const override;
  bool takes_gaps() const noexcept override;
  void watch(AttentionWatch* watch) override;
  Rows forward(const Batch& batch, KvPool& pool) override;
  Rows hidden() const override { return hidden_; }

 private:
  int max_rows() const noexcept override { return std::min(limits_.max_rows, limits_.max_logits_rows); }
  void run(const Batch& batch, KvPool& pool) override;
  void make_workspace();
  Norm norm(const Values& weight) const;
  void normalize(Rows x, const NormWeights& weights, const Linear* reader, Rows out);
  void embed(const Batch& batch);  // to x, normalized for the first layer
  void embed_for_layers(const Batch& batch);
  void take_widths_of(const LayerConfig& layer);
  // Both compute `branch` from layer_input(), add it to x, and write the normalized x for the next op to `normed`.
  void attention(const Batch& batch, KvPool& pool, int layer);
  void linear_attention(const Batch& batch, KvPool& pool, int layer);
  void watch_layer(const Batch& batch, const KvPool& pool, int layer, const AttentionParams& params);
  void finish_attention(const LayerWeights& w, int layer);  // from `branch`
  void feed_forward(int layer);                             // from layer_input() to `branch`
  // Adds `branch` to x, with all that follows in a layer, and normalizes x for the next one.
  void end_layer(int layer);
  void layer_embedding(int layer);  // from x to `branch`
  bool reads_stream() const;        // attention and feed-forward read x itself, not `normed`
  Rows layer_input() const;
  void project_qkv(const LayerWeights& w, const LayerConfig& layer);
  void rotate_and_append(const Batch& batch, KvPool& pool, int layer, const LayerWeights& w);
  void finish_branch(const NormWeights& post_norm);
  // Adds `branch` to x, multiplies x by the scale, and normalizes it for the reader if a norm is given.
  void add_branch(float scale, const NormWeights* next_norm, const Linear* reader);
  void keep_stream(int layer);  // what the draft head reads before it
  void keep_final_norm();
  void head(const Batch& batch);  // to `logits`

  const ModelConfig& config_;
  const Weights& weights_;
  const std::vector<Rope>& ropes_;
  Backend& backend_;
  ForwardLimits limits_;
  int kv_block_tokens_;
  AttentionWatch* watch_ = nullptr;

  // Activations of a step. The batch determines the number of rows in use, and the layer the width of some.
  Rows x_;            // [rows, hidden]: the residual stream
  Rows normed_;       // [rows, hidden]
  Rows q_;            // [rows, n_heads · head_dim]
  Rows k_, v_;        // [rows, n_kv_heads · head_dim]
  Rows attended_;     // [rows, n_heads · head_dim]
  Rows output_gate_;  // as attended_, of layers with such a gate
  // of linear attention
  Rows mixed_, convolved_;   // [rows, q, k and v]
  Rows alpha_, beta_;        // [rows, value heads]
  Rows linear_gate_, read_;  // [rows, value heads · value_dim]
  FeedForward feed_forward_;
  // of layers with embeddings of their own
  Rows layer_inputs_, projected_;  // [rows, n_layers · size]
  Rows embedding_gate_;            // [rows, size]
  Rows branch_;                    // [rows, hidden]: what attention or the feed-forward adds to x
  Rows last_;                      // [logits rows, hidden]
  Rows logits_;                    // [logits rows, vocab]
  std::vector<Rows> angles_;       // of each rope [rows, dims]
  // For a draft head.
  HiddenRows kept_;
  std::vector<std::int32_t> every_row_;
  Rows hidden_;  // [rows, hidden · taps], or [rows, hidden]
};

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer);

// Adds the products of a layer to those that the backend prepares for.
void add_matrices(const LayerWeights& weights, WorkspaceNeeds& needs);

// What a decoder needs from its backend, apart from weights.
WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits);

// Bytes of a decoder's activations, apart from logits.
std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits);

}  // namespace imp

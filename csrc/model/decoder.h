// The decoder-only transformer of all architectures: they differ only in the configuration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/forward_pass.h"
#include "model/layer/layer_body.h"
#include "model/layer/workspace.h"
#include "model/model.h"
#include "model/vector_head.h"

namespace imp {

// The buffers of a decoder apart from those of its layers and the logits.
struct DecoderRows {
  // of layers with embeddings of their own
  Rows layer_inputs, projected;  // [rows, n_layers · size]
  Rows embedding_gate;           // [rows, size]
  Rows hidden;                   // [rows, hidden · taps], or [rows, hidden]: kept for a draft head
  Rows last;                     // [logits rows, hidden]

  void declare(const ModelConfig& config, const HiddenRows& kept, Workspace& rows, Workspace& logits_rows);
};

// One thread at a time may use it. A model may have several decoders, and must outlive them, as must the backend.
class Decoder final : public ForwardPass, private StepBody {
 public:
  // Allocates all activations and reserves the backend's scratch. Throws ResourceExhausted(NO_MEMORY), and ModelError
  // if the backend cannot run such a model.
  Decoder(const Model& model, Backend& backend, const ForwardLimits& limits, HiddenRows kept = {});

  int vocab_size() const noexcept override { return config_.n_logits(); }
  const ForwardLimits& limits() const noexcept override { return limits_; }
  KvGeometry kv_geometry(int n_blocks, int n_state_slots) const override;
  int n_planes() const noexcept override { return n_planes_; }
  int window() const noexcept override { return window_; }
  void watch(AttentionWatch* watch) override;
  Rows forward(const Batch& batch, KvPool& pool) override;
  PoolingFacts pooling() const noexcept override { return config_.pooling_facts(); }
  Rows pooled() const override { return vector_head_.result(); }
  Rows hidden() const override { return rows_.hidden; }

 private:
  int max_rows() const noexcept override { return std::min(limits_.max_rows, limits_.max_logits_rows); }
  void run(const Batch& batch, KvPool& pool) override;
  void check(const Batch& batch) const;
  Layer layer_at(int layer) const;
  void embed(const Batch& batch);  // to the stream, normalized for the first layer
  void place_rows(const Batch& batch);
  void embed_places(const Batch& batch);  // types and positions
  void add_table_rows(const Linear& table);
  void embed_for_layers(const Batch& batch);
  void end_layer(int layer);  // what follows the feed-forward
  void add_deepstack(int layer, const Batch& batch);
  void layer_embedding(int layer);  // from the stream to the layer's branch
  void keep_stream(int layer);      // what the draft head reads before it
  void keep_final_norm();
  void compute_logits(const Batch& batch);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ForwardLimits limits_;
  int n_planes_;
  int window_;
  int kv_block_tokens_;
  HiddenRows kept_;
  Workspace workspace_;         // the batch determines the rows in use
  Workspace logits_workspace_;  // of rows with logits
  LayerBody body_;
  DecoderRows rows_;
  VectorHead vector_head_;
  Rows logits_;                           // [logits rows, vocab]
  std::vector<std::int32_t> table_rows_;  // [rows] of a table that is added to the embedding
  std::vector<std::int32_t> every_row_;
};

// Bytes of a decoder's activations, apart from logits and what it keeps for a draft head.
std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits);

}  // namespace imp

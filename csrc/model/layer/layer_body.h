// A layer of a transformer: attention and feed-forward, with the residual stream around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config/model_config.h"
#include "model/layer/attention_watch.h"
#include "model/layer/feed_forward.h"
#include "model/layer/layer_weights.h"
#include "model/layer/workspace.h"

namespace imp {

// What a body computes of its rows, and so which buffers it has. A draft head writes K and V of many rows, and attends
// with few of them later.
enum class LayerParts : std::uint8_t {
  all,
  keys,     // K and V, from an input that the caller has
  queries,  // the residual stream, attention and the feed-forward
};

constexpr bool has_keys(LayerParts parts) noexcept {
  return parts != LayerParts::queries;
}
constexpr bool has_queries(LayerParts parts) noexcept {
  return parts != LayerParts::keys;
}

// The buffers of a body. The layer determines the width of some.
struct LayerRows {
  Rows x;                    // [rows, hidden]: the residual stream
  Rows normed;               // [rows, hidden]
  Rows branch;               // [rows, hidden]: what attention or the feed-forward adds to x
  Rows q;                    // [rows, n_heads · head_dim]
  Rows k, v;                 // [rows, n_kv_heads · head_dim]
  Rows attended;             // [rows, n_heads · head_dim]
  Rows output_gate;          // as `attended`, of layers with such a gate
  std::vector<Rows> angles;  // of each RoPE [rows, dims]
  Rows mixed, convolved;     // of linear attention: [rows, q, k and v]
  Rows alpha, beta;          // of linear attention: [rows, value heads]
  Rows linear_gate, read;    // of linear attention: [rows, value heads · value_dim]
  FeedForwardRows feed_forward;

  void declare(const ModelConfig& config, LayerParts parts, Workspace& workspace);
};

// Runs the layers of a model, one after the other, over the rows of a batch. One thread at a time may use it.
class LayerBody {
 public:
  // Declares its buffers in the workspace, which sets their rows. The configuration, the RoPEs and the backend must
  // outlive the body.
  LayerBody(const ModelConfig& config, std::span<const Rope> ropes, Backend& backend, Workspace& workspace,
            LayerParts parts = LayerParts::all);
  LayerBody(const LayerBody&) = delete;
  LayerBody& operator=(const LayerBody&) = delete;

  // See ForwardPass::watch().
  void watch(AttentionWatch* watch) noexcept { watch_ = watch; }

  Rows stream() const noexcept { return rows_.x; }
  Rows normed() const noexcept { return rows_.normed; }
  Rows branch() const noexcept { return rows_.branch; }

  // Computes the angles of a batch. The caller then writes the stream.
  void begin(std::span<const std::int32_t> positions);
  // Normalizes the stream for the first layer.
  void normalize_for(const Layer& first);
  // The same for some rows of the stream, which changed after it was normalized for the layer.
  void normalize_again(const Layer& next, int first_row, std::size_t n_rows);

  // Attention of one kind or the other. Adds its output to the stream and normalizes that for the feed-forward.
  void attention(const Layer& layer, const Batch& batch, KvPool& pool);
  void linear_attention(const Layer& layer, const Batch& batch, KvPool& pool);
  // From the stream to `branch`.
  void feed_forward(const Layer& layer);
  // Adds the layer's `branch` to the stream, multiplies the stream by the layer's scale, and normalizes it for the next
  // layer, if any.
  void add_branch(const Layer& layer, const Layer* next);

  // What attention() consists of, for bodies that do not compute it in one go.
  void project_and_append(const Layer& layer, Rows input, const Batch& batch, KvPool& pool);
  void append_keys(const Layer& layer, Rows input, const Batch& batch, KvPool& pool);
  void project_queries(const Layer& layer, Rows input);
  void attend(const Layer& layer, const Batch& batch, const KvPool& pool);  // from the queries to `branch`
  void finish_attention(const Layer& layer);                                // from `branch`

 private:
  // What an op that rotates heads has to do.
  struct Rotation {
    const Rope& rope;
    Rows angles;
    Norm norm;
  };

  bool reads_stream() const noexcept;  // attention and feed-forward read the stream itself, not `normed`
  bool has_after_sum() const noexcept { return config_.norm_placement == NormPlacement::after_sum; }
  Rows input() const noexcept;  // of attention and feed-forward
  Rows attention_input(const LayerConfig& layer) const noexcept;
  Norm norm(const Values& weight) const noexcept;
  static const Linear* first_product(const Layer& layer) noexcept;  // that reads the norm; null if it is clipped first
  void take_widths_of(const LayerConfig& layer);
  void project(const Layer& layer, Rows input, LayerParts parts);
  Rotation begin_rotation(const LayerConfig& layer, Rows x, const Norm& of_heads);
  void watch_attention(const LayerConfig& layer, const Batch& batch, const KvPool& pool, const AttentionParams& params);
  void finish_branch(const NormWeights& post_norm);
  void add_and_normalize(float scale, const NormWeights* next_norm, const Linear* reader);
  void add_and_normalize_stream(const NormWeights& norm, const Linear* reader);

  const ModelConfig& config_;
  std::span<const Rope> ropes_;
  Backend& backend_;
  AttentionWatch* watch_ = nullptr;
  LayerRows rows_;
  FeedForward feed_forward_;
};

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer);

}  // namespace imp

// The pass of a draft head: one layer with a cache of its own, over hidden rows of the target.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "model/config/forward_limits.h"
#include "model/layer/layer_body.h"
#include "model/layer/workspace.h"
#include "model/model.h"
#include "model/weights/head_plan.h"

namespace imp {

// The buffers of a head apart from those of its layer.
struct HeadRows {
  // of every row that is observed
  Rows source;    // [rows, hidden_width()]: hidden rows of the target
  Rows own;       // [rows, hidden]: hidden rows of the head, unless the source or the residual stream holds them
  Rows embedded;  // [rows, hidden]
  Rows pair;      // [rows, 2 · hidden], unless the halves are joined for attention
  Rows residual;  // [rows, hidden]
  Rows joined;    // [rows, attention_width()]: what attention reads
  // of the rows that guess
  Rows input;       // [logits rows, attention_width()]
  Rows own_logits;  // [logits rows, rows of the head], if they are fewer than the target's tokens
  Rows logits;      // [logits rows, vocab]

  void declare(const HeadConfig& config, int target_vocab_size, Workspace& observed, Workspace& guessing);
};

// Cell p of the head's cache has K and V of the hidden row at position p and the token at p + 1. One thread at a time
// may use a head. It allocates nothing after its construction. Both models and the backend must outlive it.
class DraftHead {
 public:
  // Allocates all activations and reserves the backend's scratch.
  DraftHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits);

  const HeadConfig& config() const noexcept { return head_.config; }
  // Width of the rows that guess() returns: that of the target's logits.
  int vocab_size() const noexcept { return target_.config().vocab_size; }
  const ForwardLimits& limits() const noexcept { return limits_; }
  KvGeometry kv_geometry(int n_blocks) const;

  // Writes K and V of every row of the batch. tokens[i] follows the position of row i, whose hidden row of the target
  // is hidden[from[i]]. The batch has no rows with logits.
  void observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool& pool);

  // The logits of the tokens after rows of the last observe() or observe_guesses(): row i of the result goes on from
  // rows[i], and positions and sequences of the batch are those of these rows. Valid until the next call of any method.
  Rows guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool);

  // As observe(), where the hidden rows are what the last guess() left: row i of the batch follows its row from[i].
  void observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool& pool);

 private:
  const ModelConfig& sizes() const noexcept { return head_.config.layer; }
  Layer layer() const noexcept { return {sizes().layers.front(), head_.weights.layer}; }
  Norm norm(const Values& weight, const Linear* reader = nullptr) const;
  const Values& final_norm() const;
  const Linear& embedding() const;
  const Linear& output_head() const;
  Rows own_rows() const;
  void begin(LayerBody& body, const Batch& batch, std::size_t n_rows) const;
  void join(const Batch& batch, Rows own, KvPool& pool);
  Rows logits();

  const HeadModel& head_;
  const Model& target_;
  Backend& backend_;
  ForwardLimits limits_;
  int n_planes_;                   // of the target's batches, and of those of the head
  Workspace observed_, guessing_;  // rows of the last observe() or observe_guesses(), and rows that guess
  LayerBody keys_, body_;          // of these
  HeadRows rows_;
  Rows next_;  // [logits rows, hidden]: the head's output, which further guesses read
};

// Blocks of its cache beyond those of the target: for cells of guesses that follow guesses.
constexpr int chain_blocks(const ForwardLimits& limits) noexcept {
  return limits.max_logits_rows;
}

// Bytes of its activations and of the hidden rows that the target keeps for it.
std::uint64_t head_activation_bytes(const HeadConfig& config, int target_vocab_size, const ForwardLimits& limits);

// What it needs from its backend, apart from weights.
WorkspaceNeeds head_workspace_needs(const HeadConfig& config, const ModelConfig& target, const ForwardLimits& limits);

}  // namespace imp

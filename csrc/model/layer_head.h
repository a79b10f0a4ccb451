// A head of one layer with a cache of its own: NextN and EAGLE-3.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/draft_head.h"

namespace imp {

// Its buffers apart from those of its layer.
struct LayerHeadRows {
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

class LayerHead final : public DraftHead {
 public:
  LayerHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits);

  std::optional<KvGeometry> kv_geometry(int n_blocks) const override;
  void observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool* own) override;
  Rows guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) override;
  void observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool* own) override;

 private:
  Layer layer() const noexcept { return {sizes().layers.front(), head_.weights.layers.front()}; }
  const Values& final_norm() const;
  Rows own_rows() const;
  void begin(LayerBody& body, const Batch& batch, std::size_t n_rows) const;
  void join(const Batch& batch, Rows own, KvPool& pool);
  Rows logits();

  int n_planes_;                   // of the target's batches, and of those of the head
  Workspace observed_, guessing_;  // rows of the last observe() or observe_guesses(), and rows that guess
  LayerBody keys_, body_;          // of these
  LayerHeadRows rows_;
  Rows next_;  // [logits rows, hidden]: the head's output, which further guesses read
};

}  // namespace imp

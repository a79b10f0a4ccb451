// Gemma 4's assistant: several layers that attend to the cells of the target. It has no cache, and writes none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/draft_head.h"

namespace imp {

// Its buffers apart from those of its layers.
struct AssistantRows {
  Rows pair;    // [rows, 2 · target hidden]: an embedding of the target, and a hidden row
  Rows stream;  // [rows, hidden]: what the first layer reads
  Rows scores;  // [logits rows, clusters], if it has some
  Rows logits;  // [logits rows, vocab]
  Rows next;    // [logits rows, target hidden]: hidden rows for further guesses

  void declare(const HeadConfig& config, int target_vocab_size, Workspace& observed, Workspace& guessing);
};

class AssistantHead final : public DraftHead {
 public:
  AssistantHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits);

  std::optional<KvGeometry> kv_geometry(int /*n_blocks*/) const override { return std::nullopt; }
  void observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool* own) override;
  Rows guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) override;
  void observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool* own) override;

 private:
  void score();
  Layer layer_at(std::size_t i) const noexcept { return {sizes().layers[i], head_.weights.layers[i]}; }

  Workspace observed_, guessing_;  // rows of the last observe() or observe_guesses(), and rows that guess
  LayerBody body_;
  AssistantRows rows_;
};

// The most rows of a call of observe().
constexpr int observed_rows(const HeadConfig& config, const ForwardLimits& limits) noexcept {
  return config.reads_target ? limits.max_logits_rows : limits.max_rows;
}

}  // namespace imp

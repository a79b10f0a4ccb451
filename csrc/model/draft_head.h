// The pass of a draft head over hidden rows of the target.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "model/config/forward_limits.h"
#include "model/layer/layer_body.h"
#include "model/layer/workspace.h"
#include "model/model.h"
#include "model/weights/head_plan.h"

namespace imp {

// One thread at a time may use a head. It allocates nothing after its construction. Both models and the backend must
// outlive it.
class DraftHead {
 public:
  virtual ~DraftHead() = default;
  DraftHead(const DraftHead&) = delete;
  DraftHead& operator=(const DraftHead&) = delete;

  const HeadConfig& config() const noexcept { return head_.config; }
  // Width of the rows that guess() returns: that of the target's logits.
  int vocab_size() const noexcept { return target_.config().vocab_size; }
  const ForwardLimits& limits() const noexcept { return limits_; }
  // Of the cache that a head with cells of its own writes, under the block numbers of the target's. Cell p has K and V
  // of the hidden row at position p and the token at p + 1. Empty: it reads the cells of its target.
  virtual std::optional<KvGeometry> kv_geometry(int n_blocks) const = 0;

  // Takes the rows of the batch, and writes K and V of each into the head's cache, if it has one. tokens[i] follows the
  // position of row i, whose hidden row of the target is hidden[from[i]]. The batch has no rows with logits.
  virtual void observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool* own) = 0;

  // The logits of the tokens after rows of the last observe() or observe_guesses(): row i of the result goes on from
  // rows[i]. Its sequence in the batch begins at the last cell that it sees, of the head's cache or the target's; its
  // position is the one at which it stands. Valid until the next call of any method.
  virtual Rows guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) = 0;

  // As observe(), where the hidden rows are what the last guess() left: row i of the batch follows its row from[i].
  virtual void observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool* own) = 0;

 protected:
  DraftHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits)
      : head_(head), target_(target), backend_(backend), limits_(limits) {}
  const ModelConfig& sizes() const noexcept { return head_.config.stack; }
  const Linear& embedding() const;
  const Linear& output_head() const;
  Norm norm(const Values& weight, const Linear* reader = nullptr) const;
  // Reserves the backend's scratch.
  void reserve();

  const HeadModel& head_;
  const Model& target_;
  Backend& backend_;
  ForwardLimits limits_;
};

// Allocates all activations and reserves the backend's scratch.
std::unique_ptr<DraftHead> make_draft_head(const HeadModel& head, const Model& target, Backend& backend,
                                           const ForwardLimits& limits);

// Blocks of its cache beyond those of the target: for cells of guesses that follow guesses.
constexpr int chain_blocks(const ForwardLimits& limits) noexcept {
  return limits.max_logits_rows;
}

// Bytes of its activations and of the hidden rows that the target keeps for it.
std::uint64_t head_activation_bytes(const HeadConfig& config, int target_vocab_size, const ForwardLimits& limits);

// What it needs from its backend, apart from weights.
WorkspaceNeeds head_workspace_needs(const HeadConfig& config, const ModelConfig& target, const ForwardLimits& limits);

}  // namespace imp

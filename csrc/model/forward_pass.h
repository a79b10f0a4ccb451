// The engine's view of a model: a batch in, rows of logits out.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/batch.h"
#include "backend/kv_pool.h"
#include "backend/rows.h"
#include "base/error.h"
#include "model/config/forward_limits.h"
#include "model/config/pooling.h"
#include "model/layer/attention_watch.h"

namespace imp {

// What a draft head reads of each row.
struct HiddenRows {
  bool are_kept = false;
  std::vector<int> taps;  // the residual stream before these layers, side by side; empty: the final norm's output
};

class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  virtual int vocab_size() const noexcept = 0;  // the width of logits; 0: the model has no head and makes no logits
  virtual const ForwardLimits& limits() const noexcept = 0;
  // The cache that it reads and writes; the engine chooses n_blocks, and n_state_slots if the model has a recurrent
  // state.
  virtual KvGeometry kv_geometry(int n_blocks, int n_state_slots) const = 0;

  // Positions that each row has: more than one with M-RoPE.
  virtual int n_planes() const noexcept { return 1; }

  // The sliding window of the layers that have one; 0: none has. Sequences whose cells have positions with gaps need
  // SequenceRows::starts for it.
  virtual int window() const noexcept = 0;

  // From now on forward passes, of one row each, add their attention to `watch`; null: they do not.
  virtual void watch(AttentionWatch* watch) { IMP_CHECK(watch == nullptr); }

  // Runs the batch: writes K and V of every row, and returns the logits [logits_rows.size(), vocab_size] in device
  // memory, valid until the next call. A row's logits depend only on its sequence's tokens, placed rows and positions
  // up to it, or up to its end. Allocates nothing.
  virtual Rows forward(const Batch& batch, KvPool& pool) = 0;

  // The vectors that it makes of texts.
  virtual PoolingFacts pooling() const noexcept { return {}; }
  // Those of Batch::pooled of the last batch [pooled.size(), width] in device memory, valid until the next one.
  virtual Rows pooled() const { return {}; }

  // What a draft head reads of every row of the last batch, valid until the next one. Empty without a head.
  virtual Rows hidden() const { return {}; }
};

}  // namespace imp

// The part of a batch that makes vectors of texts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/step/step.h"
#include "model/forward_pass.h"

namespace imp {

// Without a run that wants a vector it costs nothing.
class TextVectors {
 public:
  TextVectors(const PoolingFacts& facts, std::size_t max_rows, std::size_t max_sequences);

  void clear() noexcept;
  // The sequence with this index in the batch has these rows and wants a vector. Sets their `ends` if they need some.
  void add(const PlannedRows& planned, std::size_t index, SequenceRows& rows);
  // Call it after all sequences.
  void end_batch(std::size_t n_rows);

  std::span<const std::int32_t> types() const noexcept { return types_; }
  std::span<const std::int32_t> pooled() const noexcept { return pooled_; }
  // Reads what the forward pass made of the batch into the step's draws.
  void read(Backend& backend, const ForwardPass& forward, Step& step) const;

 private:
  PoolingFacts facts_;
  std::vector<std::int32_t> types_;
  std::vector<std::int32_t> pooled_;
  std::vector<std::int32_t> ends_;
};

}  // namespace imp

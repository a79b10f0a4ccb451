// What one forward pass evaluates: rows of several sequences, of any lengths, in one batch.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"

namespace imp {

// Views into the caller's memory, valid during the call.
struct Batch {
  std::span<const std::int32_t> tokens;       // [n]
  std::span<const std::int32_t> positions;    // [n], of each row in its own sequence
  std::span<const SequenceRows> sequences;    // in row order, covering all n rows
  std::span<const std::int32_t> logits_rows;  // rows whose logits are wanted, ascending
};

}  // namespace imp

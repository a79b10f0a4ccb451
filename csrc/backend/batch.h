// What one forward pass evaluates: rows of several sequences, of any lengths, in one batch.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"

namespace imp {

// The token that the sampling begun last draws for its request `request`, where only the device knows it yet.
constexpr std::int32_t drawn_token(int request) noexcept {
  return -1 - request;
}
constexpr bool is_drawn(std::int32_t token) noexcept {
  return token < 0;
}
constexpr int request_of(std::int32_t token) noexcept {
  return -1 - token;
}

// Views into the caller's memory, valid during the call.
struct Batch {
  std::span<const std::int32_t> tokens;       // [n], ids or, of a backend that runs_ahead(), drawn_token()
  std::span<const std::int32_t> positions;    // [n], of each row in its own sequence
  std::span<const SequenceRows> sequences;    // in row order, covering all n rows
  std::span<const std::int32_t> logits_rows;  // rows whose logits are wanted, ascending
};

}  // namespace imp

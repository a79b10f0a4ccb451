// The input of a forward pass: rows of several sequences of any lengths in one ragged batch.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"

namespace imp {

// A placeholder for the token that request number `request` of the last begin_sample() draws: only the device knows it.
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
  std::span<const std::int32_t> tokens;       // [n] ids, or drawn_token() if the backend runs_ahead()
  std::span<const std::int32_t> positions;    // [n], each in its own sequence
  std::span<const SequenceRows> sequences;    // in row order, covering all n rows
  std::span<const std::int32_t> logits_rows;  // rows that need logits, ascending
};

}  // namespace imp

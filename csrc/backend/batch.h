// The input of a forward pass: rows of several sequences of any lengths in one ragged batch.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"
#include "backend/rows.h"

namespace imp {

// A sequence's tokens have a negative number in place of what is no token yet, or never will be. Numbers below this one
// are cells of media (an image): equal numbers mean equal content. A batch has a token in their place.
inline constexpr std::int32_t kLastMediaToken = -(1 << 30);
constexpr bool is_media(std::int32_t token) noexcept {
  return token < kLastMediaToken;
}

// A placeholder for the token that request number `request` of the last begin_sample() draws: only the device knows it.
constexpr std::int32_t drawn_token(int request) noexcept {
  return -1 - request;
}
constexpr bool is_drawn(std::int32_t token) noexcept {
  return token < 0 && !is_media(token);
}
constexpr int request_of(std::int32_t token) noexcept {
  return -1 - token;
}

// Consecutive rows of a batch that take rows of another matrix in place of the embeddings of their tokens.
struct PlacedRows {
  int first_row = 0;
  Rows from;                           // at least as wide as what is placed and what is added later
  std::span<const std::int32_t> rows;  // of `from`, one for each row
};

// Views into the caller's memory, valid during the call.
struct Batch {
  std::span<const std::int32_t> tokens;       // [n] ids, or drawn_token() if the backend runs_ahead()
  std::span<const std::int32_t> positions;    // [planes, n], each in its own sequence
  std::span<const SequenceRows> sequences;    // in row order, covering all n rows
  std::span<const std::int32_t> logits_rows;  // rows that need logits, ascending
  std::span<const PlacedRows> placed = {};    // ascending
  std::span<const std::int32_t> types = {};   // [n] token types; empty: all are 0, or the model has none
  // Sequences (their indices, ascending) whose text ends in this batch and is wanted as a vector.
  std::span<const std::int32_t> pooled = {};

  // The positions that the first plane gives its rows: those of models with one plane.
  std::span<const std::int32_t> first_plane() const noexcept { return positions.first(tokens.size()); }
};

}  // namespace imp

// The parameters of attention and of rotary positions, as data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace imp {

class Vector;

// A copy of a sequence's recurrent state, written to a slot of the pool.
struct StateSave {
  int n_rows = 0;         // the state after this many of the sequence's rows in the batch
  std::int32_t slot = 0;  // no sequence of the batch reads it
};
inline constexpr std::int32_t kNoSlot = -1;

// Consecutive rows of a batch that belong to one sequence.
struct SequenceRows {
  int first_row = 0;
  int n_rows = 0;
  int first_position = 0;                // cell of the first row = tokens held before it
  std::span<const std::int32_t> blocks;  // KV blocks of the sequence in order; they hold first_position + n_rows tokens
  // [n_rows] if rows see keys after their own: the cell behind the last key that the row may see. It is behind the
  // row's own cell, and the blocks hold the tokens before it. Empty: a row sees no key after its own.
  std::span<const std::int32_t> ends = {};
  // [n_rows], ascending, if the cells of the sequence have positions with gaps: the first cell that the row sees in
  // layers with a window. Empty: cells are positions.
  std::span<const std::int32_t> starts = {};
  // Of models with a recurrent state.
  std::int32_t state = kNoSlot;                 // the slot with the state before the first row; kNoSlot: all zero
  std::span<const StateSave> state_saves = {};  // by ascending n_rows; the last one follows all rows
};

struct AttentionParams {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 0;     // multiplies q · k
  float soft_cap = 0;  // logit soft-capping: cap · tanh(score / cap); 0: none
  int window = 0;      // sliding window: a query sees keys at positions > p - window; 0: all
  int ahead = 0;       // the most keys after its own that a query of a sequence with `ends` sees
  // Attention sinks ("Efficient Streaming Language Models with Attention Sinks"), or null: [n_heads] scores of a key
  // that every query of the head sees and whose value is 0.
  const Vector* sinks = nullptr;
};

// Whether rows of the sequence see keys after their own in a layer with these parameters.
constexpr bool sees_ahead(const AttentionParams& params, const SequenceRows& sequence) noexcept {
  return params.ahead > 0 && !sequence.ends.empty();
}

// AttentionParams::ahead of layers whose queries see all keys up to their `ends`.
inline constexpr int kAllAhead = 1 << 30;

// Keys over which Backend::attention_mass takes means.
inline constexpr int kMassPool = 13;

// Which elements of a head form a rotated pair.
enum class RopeStyle : std::uint8_t {
  adjacent,  // (0, 1), (2, 3), …
  halves,    // (0, d/2), (1, d/2 + 1), …
};

// Positions that a row has at most: in time, by row and by column of an image.
inline constexpr int kMaxPlanes = 3;

// Rotary position embedding (RoPE) of one kind of layer: the angle of pair i at position p is p · frequencies[i].
struct Rope {
  RopeStyle style = RopeStyle::halves;
  int dims = 0;                     // rotated elements of each head, even; the rest is unchanged
  std::vector<double> frequencies;  // [dims / 2], with scaling and factors applied
  float magnitude = 1;              // multiplies sine and cosine (YaRN)
  // [dims / 2] if a row has several positions (M-RoPE): the plane of positions, below kMaxPlanes, by which the pair
  // rotates. Empty: 0.
  std::vector<std::uint8_t> planes = {};
};

}  // namespace imp

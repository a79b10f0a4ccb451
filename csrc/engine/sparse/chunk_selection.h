// Chooses the part of a prompt that is evaluated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/sparse_request.h"

namespace imp {

// A prompt is kept or left out in chunks of this many tokens, counted from the first one that can be left out.
inline constexpr int kSelectionChunk = 32;

struct SelectionRules {
  int keep = kKeepAll;                             // least share of the tokens and of the chunks; at least 1
  int backbone = 0;                                // share of the chunks that always stay, evenly spread; 0 … kKeepAll
  int anchors = 1;                                 // chunks at either end that always stay; at least 1
  std::span<const std::int32_t> control_tokens{};  // ascending; a chunk with one of them always stays
};

// The number of tokens that a selection has at least.
int least_selected(int n_tokens, int keep) noexcept;

// Returns the indices of the kept tokens, ascending. Keeps whole chunks: first those that always stay, then those with
// the greatest mean importance (of equal ones the first), until both shares are reached. Always keeps the last token,
// because the first output is drawn from its row. `importance` has a finite value for each token.
std::vector<std::int32_t> select_tokens(std::span<const std::int32_t> tokens, std::span<const float> importance,
                                        const SelectionRules& rules);

}  // namespace imp

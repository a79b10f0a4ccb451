// Counts of speculative decoding.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/data/guess.h"

namespace imp {

// Of a run, or of all.
struct DraftCounts {
  std::uint64_t n_rounds = 0;    // steps that verified guesses
  std::uint64_t n_drafted = 0;   // guesses that they verified
  std::uint64_t n_accepted = 0;  // outputs that came from a guess's row
};

struct DrafterCounts {
  std::string_view name;  // empty: there is no such drafter
  DraftCounts counts;
};
// In the order of the drafters.
using CountsByDrafter = std::array<DrafterCounts, kMaxDrafters>;

// Why a step of a sequence verified no guess, although its request allows guesses.
enum class DraftSkip : std::uint8_t { no_guess, not_worth_it, no_room, media };
inline constexpr int kDraftSkips = 4;
using SkipCounts = std::array<std::uint64_t, kDraftSkips>;

}  // namespace imp

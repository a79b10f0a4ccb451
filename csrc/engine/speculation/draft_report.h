// What the FinishedEvent of a run reports about its guesses.
#pragma once

#include <string_view>

#include "engine/data/events.h"

namespace imp {

struct Run;
struct DraftHistory;

std::string_view name_of(DraftSkip skip) noexcept;

// Why the run verified no guesses when it ended: "disabled", the name of a DraftSkip, or empty. Empty also if no
// drafter found a guess.
std::string_view why_off(const Run& run, const DraftHistory& history, bool has_drafters) noexcept;

// The counts of the run, with the names of the server's drafters.
CountsByDrafter counts_of(const Run& run, const CountsByDrafter& of_server) noexcept;

}  // namespace imp

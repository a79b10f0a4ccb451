// What a run's end says about its guesses.
#pragma once

#include <string_view>

#include "engine/events.h"

namespace imp {

struct Run;
struct DraftHistory;

std::string_view name_of(DraftSkip skip) noexcept;

// Why the run verified no guesses at its end: "disabled", the name of a DraftSkip, or nothing. A run that merely found
// no guess has no reason.
std::string_view why_off(const Run& run, const DraftHistory& history, bool has_drafters) noexcept;

// The counts of the run, with the names of the server's drafters.
CountsByDrafter counts_of(const Run& run, const CountsByDrafter& of_server) noexcept;

}  // namespace imp

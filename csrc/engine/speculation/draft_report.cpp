// Names the reasons of steps without guesses, and finds that of a run.
#include "engine/speculation/draft_report.h"

#include <array>
#include <cstddef>

#include "engine/sequence/sequence.h"

namespace imp {
namespace {

constexpr std::array<std::string_view, kDraftSkips> kNames = {"no_guess", "not_worth_it", "no_room", "media"};

}  // namespace

std::string_view name_of(DraftSkip skip) noexcept {
  return kNames[static_cast<std::size_t>(skip)];
}

std::string_view why_off(const Run& run, const DraftHistory& history, bool has_drafters) noexcept {
  if (!has_drafters || run.max_draft_tokens == 0) return "disabled";
  if (history.backoff_left > 0) return name_of(DraftSkip::not_worth_it);
  if (run.drafts.n_rounds > 0) return {};
  for (const DraftSkip skip : {DraftSkip::media, DraftSkip::not_worth_it}) {
    if (run.draft_skips[static_cast<std::size_t>(skip)] > 0) return name_of(skip);
  }
  return {};
}

CountsByDrafter counts_of(const Run& run, const CountsByDrafter& of_server) noexcept {
  CountsByDrafter counts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = {.name = of_server[i].name, .counts = run.drafts_by_drafter[i]};
  }
  return counts;
}

}  // namespace imp

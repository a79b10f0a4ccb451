#include "engine/sequence/section_progress.h"

namespace imp {

SectionProgress::SectionProgress(const SectionBudget& budget) : budget_(budget) {
  if (budget.section == nullptr) return;
  const bool may_open = budget.section->opening.n_bytes > 0;
  place_ = budget.is_open ? Place::inside : may_open ? Place::before : Place::gone;
}

std::optional<std::int32_t> SectionProgress::next() const noexcept {
  if (!is_full()) return std::nullopt;
  return budget_.section->closings[static_cast<std::size_t>(n_marked_)][n_written_];
}

void SectionProgress::count(std::int32_t token) noexcept {
  if (!is_on()) return;
  const Section& section = *budget_.section;
  if (place_ == Place::before) {
    n_marked_ = section.opening.after(n_marked_, token);
    if (n_marked_ < 0) place_ = Place::gone;
    if (n_marked_ != section.opening.n_bytes) return;
    place_ = Place::inside;
    n_marked_ = 0;
  } else if (next() == token) {
    if (++n_written_ == section.closings[static_cast<std::size_t>(n_marked_)].size()) close();
  } else {
    n_marked_ = section.closing.after(n_written_ > 0 ? 0 : n_marked_, token);
    n_written_ = 0;
    if (n_marked_ == section.closing.n_bytes) return close();
    ++n_inside_;
  }
}

void SectionProgress::close() noexcept {
  const bool may_open = budget_.section->recurs && budget_.section->opening.n_bytes > 0;
  place_ = may_open ? Place::before : Place::gone;
  n_marked_ = 0;
  n_written_ = 0;
}

}  // namespace imp

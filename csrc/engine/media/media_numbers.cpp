// Gives numbers in descending order.
#include "engine/media/media_numbers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/batch.h"
#include "base/error.h"

namespace imp {

std::int32_t MediaNumbers::next_number() const noexcept {
  return static_cast<std::int32_t>(kLastMediaToken - 1 - n_given_);
}

void MediaNumbers::skip_held() {
  while (n_given_ < n_numbers_ && held_.contains(next_number())) ++n_given_;
}

void MediaNumbers::restart(std::set<std::int32_t> held) {
  known_.clear();
  held_ = std::move(held);
  n_given_ = 0;
  skip_held();
}

std::int32_t MediaNumbers::number_of(const MediaSpan& span) {
  const Part part = {span.media->digest, span.part, span.n_cells, span.n_positions, span.grid, span.is_atomic};
  const auto [place, is_new] = known_.try_emplace(part);
  Known& known = place->second;
  known.last_use = ++n_uses_;
  if (!is_new) return known.number;
  IMP_CHECK(!is_used_up());
  const std::int32_t number = known.number = next_number();
  ++n_given_;
  skip_held();
  if (known_.size() > most_known_) forget_older_half();
  return number;
}

void MediaNumbers::forget_older_half() {
  std::vector<std::uint64_t> uses;
  for (const auto& [part, known] : known_) uses.push_back(known.last_use);
  const auto middle = uses.begin() + std::ssize(uses) / 2;
  std::ranges::nth_element(uses, middle);
  std::erase_if(known_, [limit = *middle](const auto& entry) { return entry.second.last_use < limit; });
}

}  // namespace imp

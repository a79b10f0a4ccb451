// Keeps encodings in blocks of rows.
#include "engine/media/media_store.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {

bool EncodingKey::operator<(const EncodingKey& other) const noexcept {
  return std::tie(number, scope.low, scope.high) < std::tie(other.number, other.scope.low, other.scope.high);
}

MediaStore::MediaStore(Backend& backend, int width, int n_rows)
    : backend_(backend),
      n_blocks_(ceil_div(n_rows, kBlockRows)),
      arena_(backend.make_rows(kBlockRows * n_blocks_, width)) {
  clear();
}

void MediaStore::clear() {
  kept_.clear();
  free_.resize(static_cast<std::size_t>(n_blocks_));
  std::iota(free_.rbegin(), free_.rend(), 0);
}

std::span<const std::int32_t> MediaStore::rows(const EncodingKey& key) {
  const auto found = kept_.find(key);
  IMP_CHECK(found != kept_.end());
  found->second.last_use = ++n_uses_;
  return found->second.rows;
}

void MediaStore::clear_needs() noexcept {
  for (auto& [key, kept] : kept_) kept.needed = NeededBy::nobody;
}

void MediaStore::need(const EncodingKey& key, NeededBy by) noexcept {
  const auto found = kept_.find(key);
  if (found != kept_.end()) found->second.needed = std::max(found->second.needed, by);
}

bool MediaStore::make_room(int n_rows, NeededBy by) {
  const auto n_wanted = static_cast<std::size_t>(ceil_div(n_rows, kBlockRows));
  std::vector<Place> places;
  std::size_t n_free = free_.size();
  for (Place place = kept_.begin(); place != kept_.end(); ++place) {
    if (place->second.needed >= by) continue;
    places.push_back(place);
    n_free += place->second.blocks.size();
  }
  if (n_free < n_wanted) return false;
  std::ranges::sort(places, {}, [](Place place) { return std::pair(place->second.needed, place->second.last_use); });
  for (auto place = places.begin(); free_.size() < n_wanted; ++place) evict(*place);
  return true;
}

void MediaStore::evict_unneeded() {
  for (Place place = kept_.begin(); place != kept_.end();) {
    const Place next = std::next(place);
    if (place->second.needed == NeededBy::nobody) evict(place);
    place = next;
  }
}

void MediaStore::evict(Place place) {
  free_.insert(free_.end(), place->second.blocks.begin(), place->second.blocks.end());
  kept_.erase(place);
}

void MediaStore::add(const EncodingKey& key, Rows encoding) {
  const int n_blocks = ceil_div(encoding.n_rows, kBlockRows);
  IMP_CHECK(!contains(key) && static_cast<std::size_t>(n_blocks) <= free_.size());
  std::array<std::int32_t, kBlockRows> from{};
  Kept made;
  made.blocks.reserve(static_cast<std::size_t>(n_blocks));
  made.rows.reserve(static_cast<std::size_t>(encoding.n_rows));
  Kept& kept = kept_.emplace(key, std::move(made)).first->second;
  kept.last_use = ++n_uses_;
  for (int first = 0; first < encoding.n_rows; first += kBlockRows) {
    const std::int32_t block = free_.back();
    free_.pop_back();
    kept.blocks.push_back(block);
    const int n_rows = std::min(kBlockRows, encoding.n_rows - first);
    std::iota(from.begin(), from.end(), first);
    Rows to = arena_;
    to.data += std::ptrdiff_t{block} * kBlockRows * arena_.stride;
    to.n_rows = n_rows;
    backend_.gather_rows(encoding, std::span(from).first(static_cast<std::size_t>(n_rows)), to);
    for (int row = 0; row < n_rows; ++row) kept.rows.push_back(block * kBlockRows + row);
  }
}

}  // namespace imp

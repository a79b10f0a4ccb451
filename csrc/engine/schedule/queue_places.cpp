// Counts the places of the queue, and shares them.
#include "engine/schedule/queue_places.h"

#include <algorithm>

#include "base/error.h"

namespace imp {

void QueuePlaces::take(const std::string& tenant, int n_sequences, std::int64_t n_tokens) {
  if (place_of(tenant, 0, 0).n_left < n_sequences) {
    throw ResourceExhausted(
        Reason::QUEUE_FULL,
        std::to_string(all_.n_sequences) + " sequences are waiting, the limit is " + std::to_string(most_),
        {{"bound", "requests"}});
  }
  if (!has_room_for(tenant, n_tokens)) {
    throw ResourceExhausted(
        Reason::QUEUE_FULL,
        std::to_string(all_.n_tokens) + " tokens wait, the limit is " + std::to_string(most_tokens_),
        {{"bound", "tokens"}});
  }
  Held& held = tenants_[tenant];
  held.n_sequences += n_sequences;
  held.n_tokens += n_tokens;
  all_.n_sequences += n_sequences;
  all_.n_tokens += n_tokens;
}

void QueuePlaces::give_back(const std::string& tenant, int n_sequences, std::int64_t n_tokens) {
  const auto found = tenants_.find(tenant);
  IMP_CHECK(found != tenants_.end());
  found->second.n_sequences -= n_sequences;
  found->second.n_tokens -= n_tokens;
  if (found->second.n_sequences == 0) tenants_.erase(found);
  all_.n_sequences -= n_sequences;
  all_.n_tokens -= n_tokens;
}

QueuePlace QueuePlaces::place_of(const std::string& tenant, int n_own, int n_coming) const {
  const int n_tenants = n_tenants_with(tenant);
  const int n_mine = held_by(tenant).n_sequences + n_own;
  const int n_all = all_.n_sequences + n_coming;
  int n_left = most_ - n_all;
  if (n_mine < n_all) {
    const int own_part = std::max(1, most_ / n_tenants) - n_mine;
    n_left = std::max(n_left, std::min(own_part, 2 * most_ - n_all));
  }
  return {.n_left = std::max(0, n_left), .n_ahead = std::min(n_all, (n_mine + 1) * n_tenants - 1)};
}

// A prompt of any length may wait alone, and beside those of other tenants.
bool QueuePlaces::has_room_for(const std::string& tenant, std::int64_t n_tokens) const {
  const std::int64_t n_mine = held_by(tenant).n_tokens;
  if (all_.n_tokens == 0 || all_.n_tokens + n_tokens <= most_tokens_) return true;
  const bool is_in_part = n_mine == 0 || n_mine + n_tokens <= most_tokens_ / n_tenants_with(tenant);
  return n_mine < all_.n_tokens && is_in_part && all_.n_tokens <= 2 * most_tokens_;
}

QueuePlaces::Held QueuePlaces::held_by(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? Held{} : found->second;
}

int QueuePlaces::n_tenants_with(const std::string& tenant) const {
  return static_cast<int>(tenants_.size()) + (tenants_.contains(tenant) ? 0 : 1);
}

}  // namespace imp

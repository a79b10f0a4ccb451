// Chooses the idle sessions that are closed to free their blocks.
#include <algorithm>
#include <functional>

#include "engine/schedule/scheduler.h"

namespace imp {

// The owner of a block owns every block before it. So the last block of a table has the fewest owners.
Scheduler::Freed Scheduler::freed_by(const Sequence& session) const {
  const std::vector<std::int32_t>& blocks = session.table.blocks;
  if (blocks.empty()) return Freed::nothing;
  const int n_owners = owners_left(blocks.back());
  if (n_owners == 1) return Freed::blocks;
  const auto shares_end = [&blocks](const Sequence* other) {
    const std::vector<std::int32_t>& others = other->table.blocks;
    return others.size() >= blocks.size() && others[blocks.size() - 1] == blocks.back();
  };
  return std::ranges::count_if(idle_sessions_, shares_end) == n_owners ? Freed::blocks_with_others : Freed::nothing;
}

// The longest idle session whose end frees blocks. If there is none: the longest idle one whose blocks become free once
// all sessions that share them have ended, which are idle too. Null if nothing would become free.
Sequence* Scheduler::longest_idle(std::span<Sequence* const> sessions) const {
  Sequence* longest = nullptr;
  Freed most = Freed::nothing;
  for (Sequence* idle : sessions) {
    const Freed freed = freed_by(*idle);
    const bool is_longer = longest == nullptr || idle->scheduling.idle_since_ns < longest->scheduling.idle_since_ns;
    if (freed == Freed::nothing || freed < most || (freed == most && !is_longer)) continue;
    longest = idle;
    most = freed;
  }
  return longest;
}

// The number of blocks that the sessions hold. A block that several of them share counts once.
int Scheduler::blocks_held(std::span<Sequence* const> sessions) {
  const std::uint64_t mark = ++last_mark_;
  int n_blocks = 0;
  for (const Sequence* session : sessions) {
    for (const std::int32_t block : session->table.blocks) {
      std::uint64_t& seen = marks_[static_cast<std::size_t>(block)];
      n_blocks += seen == mark ? 0 : 1;
      seen = mark;
    }
  }
  return n_blocks;
}

// A tenant's share is tenant_share of all blocks, but at most an equal part for each tenant with idle sessions and for
// the tenant that wants blocks. Looks at the other tenants whose idle sessions hold more than a share and can free
// blocks. Takes the longest idle session of the one that holds most.
Sequence* Scheduler::longest_idle_above_share(const Sequence& wanting) {
  std::ranges::sort(idle_sessions_, {}, [](const Sequence* session) -> const std::string& { return session->tenant; });
  const auto of_one_tenant = [](const Sequence* a, const Sequence* b) { return a->tenant == b->tenant; };
  const auto for_each_other = [&](const auto& visit) {
    for (auto left = std::span<Sequence* const>(idle_sessions_); !left.empty();) {
      const auto end = std::ranges::adjacent_find(left, std::not_fn(of_one_tenant));
      const auto n = end == left.end() ? left.size() : static_cast<std::size_t>(end - left.begin()) + 1;
      if (left.front()->tenant != wanting.tenant) visit(left.first(n));
      left = left.subspan(n);
    }
  };
  int n_tenants = 1;
  for_each_other([&](std::span<Sequence* const> sessions) { n_tenants += blocks_held(sessions) > 0 ? 1 : 0; });
  const double share = std::min(options_.tenant_share, 1.0 / n_tenants) * blocks_.allocator().n_blocks();
  Sequence* found = nullptr;
  int n_most = 0;
  for_each_other([&](std::span<Sequence* const> sessions) {
    const int n_blocks = blocks_held(sessions);
    if (n_blocks <= share || n_blocks <= n_most) return;
    Sequence* session = longest_idle(sessions);
    if (session == nullptr) return;
    found = session;
    n_most = n_blocks;
  });
  return found;
}

// Owners of a block other than the sessions that are to end.
int Scheduler::owners_left(std::int32_t block) const {
  return blocks_.allocator().owners(block) - n_leaving_[static_cast<std::size_t>(block)];
}

// The idle session is to end. Returns how many blocks become free.
int Scheduler::mark_leaving(Sequence& session) {
  std::erase(idle_sessions_, &session);
  leaving_.push_back(&session);
  int n_freed = 0;
  for (const std::int32_t block : session.table.blocks) {
    ++n_leaving_[static_cast<std::size_t>(block)];
    n_freed += owners_left(block) == 0 ? 1 : 0;
  }
  return n_freed;
}

// Ends as many idle sessions as it takes to make n_needed blocks available. If all that may end are not enough, ends
// none and returns false.
bool Scheduler::evict_sessions(const Sequence& wanting, int n_needed, StepPlan& plan) {
  int n_available = blocks_.n_available();
  while (n_available < n_needed) {
    Sequence* session = options_.evict_sessions ? longest_idle(idle_sessions_) : longest_idle_above_share(wanting);
    if (session == nullptr) break;
    n_available += mark_leaving(*session);
  }
  const bool is_enough = n_available >= n_needed;
  for (Sequence* session : leaving_) {
    for (const std::int32_t block : session->table.blocks) --n_leaving_[static_cast<std::size_t>(block)];
    if (is_enough) {
      blocks_.truncate(session->table, 0);
      plan.evicted.push_back(session);
    } else {
      idle_sessions_.push_back(session);
    }
  }
  leaving_.clear();
  return is_enough;
}

// Whether the admission of a waiting run could end an idle session.
bool Scheduler::may_evict() const noexcept {
  if (idle_sessions_.empty()) return false;
  const auto is_another = [this](const Sequence* sequence) {
    return sequence->tenant != idle_sessions_.front()->tenant;
  };
  return options_.evict_sessions || std::ranges::any_of(waiting_, is_another) ||
         std::ranges::any_of(idle_sessions_, is_another);
}

}  // namespace imp

// Chooses the idle sessions that are closed to free their blocks.
#include <algorithm>
#include <functional>

#include "engine/scheduler.h"

namespace imp {

// The owner of a block owns every block before it. So the last block of a table has the fewest owners.
Scheduler::Freed Scheduler::freed_by(const Sequence& session) const {
  const std::vector<std::int32_t>& blocks = session.table.blocks;
  if (blocks.empty()) return Freed::nothing;
  const int n_owners = blocks_.allocator().owners(blocks.back());
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

// Of all tenants but the one of `wanting`: the idle sessions of the one whose idle sessions hold the most blocks, if
// these are more than its share. A share is tenant_share of all blocks, but at most an equal part for each tenant with
// idle sessions and for the tenant that wants blocks.
std::span<Sequence* const> Scheduler::above_share(const Sequence& wanting) {
  std::ranges::sort(idle_sessions_, {}, [](const Sequence* session) -> const std::string& { return session->tenant; });
  const auto of_one_tenant = [](const Sequence* a, const Sequence* b) { return a->tenant == b->tenant; };
  std::span<Sequence* const> most;
  int n_most = 0, n_tenants = 1;
  for (auto left = std::span<Sequence* const>(idle_sessions_); !left.empty();) {
    const auto end = std::ranges::adjacent_find(left, std::not_fn(of_one_tenant));
    const auto n = end == left.end() ? left.size() : static_cast<std::size_t>(end - left.begin()) + 1;
    const std::span<Sequence* const> sessions = left.first(n);
    left = left.subspan(n);
    if (sessions.front()->tenant == wanting.tenant) continue;
    const int n_blocks = blocks_held(sessions);
    n_tenants += n_blocks > 0 ? 1 : 0;
    if (n_blocks <= n_most) continue;
    most = sessions;
    n_most = n_blocks;
  }
  const double share = std::min(options_.tenant_share, 1.0 / n_tenants) * blocks_.allocator().n_blocks();
  return n_most > share ? most : std::span<Sequence* const>();
}

bool Scheduler::evict_session(const Sequence& wanting, StepPlan& plan) {
  Sequence* session =
      longest_idle(options_.evict_sessions ? std::span<Sequence* const>(idle_sessions_) : above_share(wanting));
  if (session == nullptr) return false;
  std::erase(idle_sessions_, session);
  blocks_.truncate(session->table, 0);
  plan.evicted.push_back(session);
  return true;
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

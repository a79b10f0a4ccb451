// The scheduler's door to the blocks: who of the waiting is admitted next, and whether it fits.
#include <algorithm>

#include "base/error.h"
#include "engine/scheduler.h"

namespace imp {

void Scheduler::admit(std::int64_t now_ns, Budget& budget, StepPlan& plan) {
  if (waiting_.empty()) return;
  bool sessions_only = false;  // a generation waits for blocks: no other overtakes it
  int n_used = used_slots();
  while (budget.rows > 0 && budget.sequences > 0) {
    Sequence* sequence = next_waiting(now_ns, sessions_only);
    if (sequence == nullptr) return;
    const int n_slots = 1 + static_cast<int>(sequence->run->siblings.size());
    if (n_used + n_slots > options_.max_running) return;
    switch (try_admit(*sequence, plan)) {
      case Admission::admitted:
        n_used += n_slots;
        plan_rows(*sequence, budget, plan);
        break;
      case Admission::blocked:
        sessions_only = true;
        break;
      case Admission::refused:
        break;
    }
  }
}

Sequence* Scheduler::next_waiting(std::int64_t now_ns, bool sessions_only) const noexcept {
  Sequence* best = nullptr;
  for (Sequence* sequence : waiting_) {
    if (sequence->run->paused() || over_share(*sequence)) continue;
    if (sessions_only && sequence->kind != SequenceKind::session) continue;
    if (best == nullptr || goes_before(*sequence, *best, now_ns)) best = sequence;
  }
  return best;
}

bool Scheduler::over_share(const Sequence& sequence) const noexcept {
  const Tenant& tenant = *sequence.scheduling.tenant;
  const int share = std::max(1, static_cast<int>(options_.tenant_share * options_.max_running));
  return !sequence.scheduling.preempted && tenant.n_running >= share && tenants_.others_wait(tenant);
}

Scheduler::Admission Scheduler::try_admit(Sequence& sequence, StepPlan& plan) {
  const bool generation = sequence.kind == SequenceKind::generation;
  const bool others_run = n_running_generations() > 0;
  if (generation && others_run && &sequence == blocked_ && blocks_.n_available() == blocked_available_) {
    return Admission::blocked;
  }
  int needed = 0;
  if (fits(sequence, plan, needed)) {
    Run& run = *sequence.run;
    const bool first = run.scheduled_ns < 0;
    if (first) plan.admitted.push_back(&sequence);
    blocks_.prepare(sequence.table, sequence.held, static_cast<int>(sequence.tokens.size()), plan.copies);
    std::erase(waiting_, &sequence);
    start_running(sequence);
    return Admission::admitted;
  }
  // Only generations give blocks back by themselves: with none of them running there is nothing to wait for. One that
  // had run waits all the same, and sessions take no blocks meanwhile.
  if (generation && (others_run || sequence.scheduling.preempted)) {
    blocked_ = &sequence;
    blocked_available_ = blocks_.n_available();
    return Admission::blocked;
  }
  const int available = blocks_.n_available();
  remove(sequence);
  plan.refused.push_back({&sequence, needed, available});
  return Admission::refused;
}

// Whether the sequence's blocks can be taken now. What it finds in the prefix cache stays with it only if they can.
bool Scheduler::fits(Sequence& sequence, StepPlan& plan, int& needed) {
  const int held = sequence.held;
  const int found = find_prefix(sequence) ? sequence.held - held : 0;
  needed = needed_blocks(sequence);
  const bool frozen = sequence.kind == SequenceKind::session && needed > 0 && sessions_frozen();
  while (!frozen && needed > blocks_.n_available() && evict_session(plan)) {
  }
  if (!frozen && needed <= blocks_.n_available()) {
    if (sequence.run->scheduled_ns < 0) sequence.run->n_cached = found;
    return true;
  }
  if (found > 0) {
    sequence.held = held;
    blocks_.truncate(sequence.table, held);
  }
  return false;
}

bool Scheduler::find_prefix(Sequence& sequence) {
  const Run& run = *sequence.run;
  // Scores need the logits of every token: none may be skipped.
  if (sequence.bypass_prefix || (run.returns.scores && !run.started)) return false;
  const int found = blocks_.match(sequence.table, sequence.scope.key, sequence.tokens, sequence.held);
  sequence.held += found;
  return found > 0;
}

int Scheduler::needed_blocks(const Sequence& sequence) const {
  const auto n_tokens = static_cast<int>(sequence.tokens.size());
  if (sequence.kind == SequenceKind::session) return blocks_.missing(sequence.table, sequence.held, n_tokens);
  const Run& run = *sequence.run;
  const int n_left = run.limits.max_outputs < 0 ? options_.max_context : run.limits.max_outputs - run.n_outputs;
  const int n_others = n_running_generations();
  // A block's worth, and twice that after every preemption, so that a sequence is preempted a few times at most. One
  // that nobody would preempt needs no reserve to go on.
  const int wanted =
      run.n_preemptions > 0 && n_others == 0 ? 1 : blocks_.block_tokens() << std::min(run.n_preemptions, 10);
  const int reserve = std::min(std::max(n_left - 1, 0), wanted);
  const int end = std::min(options_.max_context, n_tokens + reserve);
  const int n_sequences = 1 + static_cast<int>(run.siblings.size());
  const int held_already = static_cast<int>(sequence.table.blocks.size());
  // And a block for each generation that runs: it will want one soon.
  return group_blocks(blocks_.block_tokens(), n_tokens, end, n_sequences) - held_already + n_others;
}

// What a session's end frees. Who holds a block holds every block before it, so that nothing of a table has fewer
// owners than its end.
Scheduler::Freed Scheduler::freed_by(const Sequence& session) const {
  const std::vector<std::int32_t>& blocks = session.table.blocks;
  if (blocks.empty()) return Freed::nothing;
  const int n_owners = blocks_.allocator().owners(blocks.back());
  if (n_owners == 1) return Freed::blocks;
  const auto shares_end = [&blocks](const Sequence* other) {
    const std::vector<std::int32_t>& others = other->table.blocks;
    return others.size() >= blocks.size() && others[blocks.size() - 1] == blocks.back();
  };
  return std::ranges::count_if(resting_, shares_end) == n_owners ? Freed::blocks_with_others : Freed::nothing;
}

// The longest idle session whose end frees blocks; where there is none, the longest idle of those that free some once
// all who share them, idle too, have ended.
bool Scheduler::evict_session(StepPlan& plan) {
  if (!options_.evict_sessions) return false;
  Sequence* session = nullptr;
  Freed most = Freed::nothing;
  for (Sequence* idle : resting_) {
    const Freed freed = freed_by(*idle);
    const bool is_longer = session == nullptr || idle->scheduling.rested_ns < session->scheduling.rested_ns;
    if (freed == Freed::nothing || freed < most || (freed == most && !is_longer)) continue;
    session = idle;
    most = freed;
  }
  if (session == nullptr) return false;
  std::erase(resting_, session);
  blocks_.truncate(session->table, 0);
  plan.evicted.push_back(session);
  return true;
}

}  // namespace imp

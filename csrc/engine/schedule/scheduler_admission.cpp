// Admission: which waiting run starts next, and whether its blocks fit.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "engine/schedule/scheduler.h"

namespace imp {
namespace {

int slots_of(const Sequence& sequence) noexcept {
  return 1 + static_cast<int>(sequence.run->siblings.size());
}

// The tokens with which other sequences may begin, and one after them, since match() leaves one to evaluate. Scores
// need the logits of the token before the first one that has a score, and of all from there on.
std::span<const std::int32_t> shareable(const Sequence& sequence) noexcept {
  const Run& run = *sequence.run;
  const bool is_scored = run.returns.scores && !run.started;
  const int most = is_scored ? run.returns.first_score - 1 : sequence.n_shareable();
  const auto n_most = static_cast<std::size_t>(std::clamp(most, -1, sequence.n_shareable()) + 1);
  return std::span(sequence.tokens).first(std::min(sequence.tokens.size(), n_most));
}

}  // namespace

void Scheduler::admit(std::int64_t now_ns, Budget& budget, StepPlan& plan) {
  if (waiting_.empty()) return;
  AdmissionPass pass{.n_used = used_slots()};
  while (budget.rows > 0 && budget.sequences > 0) {
    Sequence* sequence = next_waiting(now_ns, pass);
    if (sequence == nullptr) return;
    while (!has_state_slots(*sequence) && paused_with_state() != nullptr) preempt(*paused_with_state());
    const int n_slots = slots_of(*sequence);
    if (pass.is_full ? !has_equal_share(*sequence, pass.n_used) : !has_slot(*sequence, pass.n_used)) {
      // All other runs of the tenant wait too: otherwise single runs could overtake a group forever. Tenants below
      // their equal share are still admitted.
      pass.is_full = true;
      sequence->scheduling.tenant->full_at = n_steps_;
      continue;
    }
    const bool is_step = sequence->is_runnable();
    switch (try_admit(*sequence, plan)) {
      case Admission::admitted:
        pass.n_used += n_slots;
        if (is_step) --sequence->scheduling.tenant->n_rows;
        limit_sequences(budget, plan);
        plan_rows(*sequence, budget, plan);
        break;
      case Admission::blocked:
        pass.sessions_only = true;
        break;
      case Admission::refused:
        break;
    }
  }
}

Sequence* Scheduler::next_waiting(std::int64_t now_ns, const AdmissionPass& pass) const noexcept {
  Sequence* best = nullptr;
  for (Sequence* sequence : waiting_) {
    if (!may_start(*sequence) || sequence->run->awaits_media) continue;
    if (sequence->is_runnable() && sequence->scheduling.tenant->n_rows <= 0) continue;
    if (pass.sessions_only && sequence->kind != SequenceKind::session) continue;
    if (sequence->scheduling.tenant->full_at == n_steps_) continue;
    if (best == nullptr || goes_before(*sequence, *best, now_ns)) best = sequence;
  }
  return best;
}

bool Scheduler::may_start(const Sequence& sequence) const noexcept {
  return !sequence.run->paused() && !sequence.run->awaits_scoring && !over_share(sequence);
}

bool Scheduler::over_share(const Sequence& sequence) const noexcept {
  const Tenant& tenant = *sequence.scheduling.tenant;
  const int share = std::max(1, static_cast<int>(options_.tenant_share * options_.max_running));
  return !sequence.scheduling.preempted && tenant.n_running >= share && tenants_.others_wait(tenant);
}

bool Scheduler::has_slot(const Sequence& sequence, int n_used) const noexcept {
  const bool has_place = n_used + slots_of(sequence) <= options_.max_running && has_state_slots(sequence);
  return has_place || has_equal_share(sequence, n_used);
}

bool Scheduler::has_state_slots(const Sequence& sequence) const noexcept {
  if (!blocks_.states().is_used()) return true;
  int n_held = slots_of(sequence);
  for (const Sequence* running : running_) n_held += slots_of(*running);
  return n_held < blocks_.states().n_slots();
}

// A generation that would hold its state for as long as its reader pauses it; null if the model has no state.
Sequence* Scheduler::paused_with_state() const noexcept {
  if (!blocks_.states().is_used()) return nullptr;
  const auto is_paused = [](const Sequence* sequence) {
    return sequence->kind == SequenceKind::generation && sequence->run->paused();
  };
  const auto found = std::find_if(running_.rbegin(), running_.rend(), is_paused);
  return found == running_.rend() ? nullptr : *found;
}

// A tenant always gets its equal part of max_running: if other tenants hold the slots, it runs in addition to them, up
// to twice max_running in all. So does a run that was preempted.
bool Scheduler::has_equal_share(const Sequence& sequence, int n_used) const noexcept {
  const int n_slots = slots_of(sequence);
  if (tenants_.n_active() < 2 || n_used + n_slots > 2 * options_.max_running) return false;
  if (!has_state_slots(sequence)) return false;
  const Tenant& tenant = *sequence.scheduling.tenant;
  const int share = std::max(1, options_.max_running / tenants_.n_active());
  return sequence.scheduling.preempted || tenant.n_running == 0 || tenant.n_running + n_slots <= share;
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
  // Only generations release blocks by themselves, so a run waits only while one runs. A preempted generation waits in
  // any case, and sessions take no blocks meanwhile.
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

// Whether the sequence's blocks can be allocated now. A prefix found in the cache stays with the sequence only if they
// can.
bool Scheduler::fits(Sequence& sequence, StepPlan& plan, int& needed) {
  const int held = sequence.held;
  const int found = find_prefix(sequence) ? sequence.held - held : 0;
  // Tokens after the last known state are evaluated again.
  sequence.held = blocks_.state_position(sequence.table, sequence.held);
  needed = needed_blocks(sequence);
  const bool frozen = sequence.kind == SequenceKind::session && needed > 0 && sessions_frozen();
  if (!frozen && evict_sessions(sequence, needed, plan)) {
    if (sequence.run->scheduled_ns < 0) sequence.run->n_cached = found;
    blocks_.hold_state(sequence.table, sequence.held);
    return true;
  }
  sequence.held = held;
  if (found > 0) blocks_.truncate(sequence.table, held);
  return false;
}

bool Scheduler::find_prefix(Sequence& sequence) {
  const Run& run = *sequence.run;
  // Whole texts need every row, so no cached prefix is used.
  if (sequence.bypass_prefix || run.is_whole) return false;
  const int found = blocks_.match(sequence.table, sequence.scope.key, shareable(sequence), sequence.held);
  sequence.held += found;
  return found > 0;
}

int Scheduler::needed_blocks(const Sequence& sequence) const {
  const auto n_tokens = static_cast<int>(sequence.tokens.size());
  if (sequence.kind == SequenceKind::session) return blocks_.missing(sequence.table, sequence.held, n_tokens);
  const Run& run = *sequence.run;
  const int n_left = run.limits.max_outputs < 0 ? options_.max_context : run.limits.max_outputs - run.n_outputs;
  const int n_others = n_running_generations();
  // A reserve of one block, doubled at every preemption, so that a sequence is preempted only a few times. A generation
  // that cannot be preempted needs no reserve.
  const int wanted =
      run.n_preemptions > 0 && n_others == 0 ? 1 : blocks_.block_tokens() << std::min(run.n_preemptions, 10);
  const int reserve = std::min(std::max(n_left - 1, 0), wanted);
  const int end = std::min(options_.max_context, n_tokens + reserve);
  const int n_sequences = 1 + static_cast<int>(run.siblings.size());
  const int held_already = static_cast<int>(sequence.table.blocks.size());
  // Leaves a block for each running generation, which will need one soon.
  return group_blocks(blocks_.block_tokens(), n_tokens, end, n_sequences) - held_already + n_others;
}

}  // namespace imp

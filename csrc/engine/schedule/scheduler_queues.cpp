// The scheduler's queues: which runs wait, run or are idle, and their order.
#include <algorithm>

#include "engine/schedule/scheduler.h"

namespace imp {
namespace {

bool runs_before(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->scheduling.order < b->scheduling.order;
}

}  // namespace

// Reserves memory so that no step allocates. Paused runs release their slots, so all sequences may run, or wait again.
void Scheduler::reserve_queues(std::size_t n_more) {
  const std::size_t n = running_.size() + static_cast<std::size_t>(tenants_.n_waiting()) + n_more;
  for (std::vector<Sequence*>* list : {&running_, &waiting_, &prefills_, &decodes_}) {
    if (n > list->capacity()) list->reserve(std::max(n, 2 * list->capacity()));
  }
  busy_tenants_.reserve(decodes_.capacity());
}

void Scheduler::enqueue(Sequence& sequence, std::int64_t now_ns) {
  reserve_queues(1 + sequence.run->siblings.size());
  const auto enter = [this, now_ns](Sequence& entering) {
    Scheduling& scheduling = entering.scheduling;
    scheduling.order = next_order_++;
    scheduling.turn = next_turn_++;
    scheduling.queued_ns = now_ns;
    scheduling.preempted = false;
    scheduling.tenant = &tenants_.enter(entering.tenant);
    scheduling.phase = RunPhase::waiting;
    tenants_.count_waiting(*scheduling.tenant, 1);
  };
  enter(sequence);
  waiting_.push_back(&sequence);
  for (Sequence* sibling : sequence.run->siblings) enter(*sibling);
}

void Scheduler::join(Sequence& sibling) {
  start_running(sibling);
}

void Scheduler::remove(Sequence& sequence) {
  Scheduling& scheduling = sequence.scheduling;
  if (scheduling.phase == RunPhase::none) return;
  if (scheduling.phase == RunPhase::running) {
    leave_running(sequence);
    tenants_.count_running(*scheduling.tenant, -1);
  } else {
    std::erase(waiting_, &sequence);
    tenants_.count_waiting(*scheduling.tenant, -1);
  }
  blocked_ = nullptr;  // a generation that waits for blocks may fit now, even if none became free
  scheduling.phase = RunPhase::none;
  scheduling.tenant = nullptr;
  tenants_.leave(sequence.tenant);
}

void Scheduler::set_idle(Sequence& session, std::int64_t now_ns) {
  session.scheduling.idle_since_ns = now_ns;
  blocked_ = nullptr;  // the idle session can be evicted
  idle_sessions_.push_back(&session);
}

void Scheduler::set_busy(Sequence& session) {
  std::erase(idle_sessions_, &session);
}

bool Scheduler::over_waiting_share(const std::string& tenant, int n_slots) const {
  const Tenant* found = tenants_.find(tenant);
  const int share = std::max(1, static_cast<int>(options_.tenant_share * n_slots));
  return found != nullptr && found->n_waiting >= share && tenants_.others_wait(*found);
}

void Scheduler::leave_running(Sequence& sequence) noexcept {
  std::erase(running_, &sequence);
  if (passed_over_ == &sequence) passed_over_ = nullptr;
}

void Scheduler::preempt(Sequence& victim) {
  ++victim.run->n_preemptions;
  ++n_preemptions_;
  requeue(victim);
}

void Scheduler::requeue(Sequence& sequence) {
  blocks_.truncate(sequence.table, 0);
  sequence.held = 0;
  if (!sequence.run->started) sequence.run->scores.clear();
  sequence.run->awaits_media = !sequence.media.empty();
  sequence.run->n_cached_before = -1;
  leave_running(sequence);
  waiting_.push_back(&sequence);
  sequence.scheduling.phase = RunPhase::waiting;
  sequence.scheduling.preempted = true;
  sequence.scheduling.is_chosen = false;
  tenants_.count_running(*sequence.scheduling.tenant, -1);
  tenants_.count_waiting(*sequence.scheduling.tenant, 1);
}

Sequence* Scheduler::next_to_score(std::int64_t now_ns) const noexcept {
  Sequence* best = nullptr;
  for (Sequence* sequence : waiting_) {
    if (!sequence->run->awaits_scoring || sequence->run->paused()) continue;
    if (best == nullptr || goes_before(*sequence, *best, now_ns)) best = sequence;
  }
  return best;
}

bool Scheduler::goes_before(const Sequence& a, const Sequence& b, std::int64_t now_ns) const noexcept {
  const Scheduling& x = a.scheduling;
  const Scheduling& y = b.scheduling;
  if (x.preempted != y.preempted) return x.preempted;
  if (x.preempted) return runs_before(&a, &b);
  const std::int64_t max_wait_ns = options_.max_wait_ms * 1'000'000;
  const bool x_overdue = now_ns - x.queued_ns >= max_wait_ns;
  const bool y_overdue = now_ns - y.queued_ns >= max_wait_ns;
  if (x_overdue != y_overdue) return x_overdue;
  if (x_overdue) return x.order < y.order;
  if (a.priority != b.priority) return a.priority > b.priority;
  const std::uint64_t x_level = tenants_.level(*x.tenant);
  const std::uint64_t y_level = tenants_.level(*y.tenant);
  if (x_level != y_level) return x_level < y_level;
  return x.order < y.order;
}

// While a running generation lacks a block, or a preempted one waits for blocks, sessions take no blocks. A paused
// generation does not count, since it would not run anyway.
bool Scheduler::sessions_frozen() const noexcept {
  return starved_ || std::ranges::any_of(waiting_, [](const Sequence* sequence) {
           return sequence->scheduling.preempted && !sequence->run->paused();
         });
}

void Scheduler::start_running(Sequence& sequence) {
  const auto place = std::ranges::upper_bound(running_, &sequence, runs_before);
  running_.insert(place, &sequence);
  sequence.scheduling.phase = RunPhase::running;
  sequence.scheduling.preempted = false;
  tenants_.count_waiting(*sequence.scheduling.tenant, -1);
  tenants_.count_running(*sequence.scheduling.tenant, 1);
}

int Scheduler::n_running_generations() const noexcept {
  return static_cast<int>(std::ranges::count(running_, SequenceKind::generation, &Sequence::kind));
}

// Running sequences that take part in steps. A paused one releases its slot.
int Scheduler::used_slots() const noexcept {
  int n_used = 0;
  for (const Sequence* sequence : running_) {
    if (!sequence->run->paused()) n_used += 1 + static_cast<int>(sequence->run->siblings.size());
  }
  return n_used;
}

}  // namespace imp

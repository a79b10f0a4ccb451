// Plans steps: decode rows first, then prefill chunks.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "backend/batch.h"
#include "base/error.h"

namespace imp {
namespace {

// Upper bound of a tenant's saved credit, in whole steps.
constexpr std::uint64_t kCreditSteps = 8;

// A scored run needs the logits of the row before each token until its scores are reported.
bool wants_all_logits(const Run& run) {
  return run.returns.scores && !run.started;
}

struct ScoredRows {
  int n_rows = 0;
  int n_logits_rows = 0;
};

// The most rows, up to n_rows, of which no more than this many have logits. A cell of a medium has no score, nor have
// the tokens before the first one that is to be scored.
ScoredRows scored_rows(const Sequence& sequence, int n_rows, int most_logits_rows) {
  ScoredRows found;
  for (auto next = static_cast<std::size_t>(sequence.held + 1); found.n_rows < n_rows; ++next) {
    const bool is_wanted = static_cast<std::int32_t>(next) >= sequence.run->returns.first_score;
    const bool is_scored = next == sequence.tokens.size() || (is_wanted && !is_media(sequence.tokens[next]));
    if (is_scored && found.n_logits_rows == most_logits_rows) break;
    ++found.n_rows;
    found.n_logits_rows += is_scored ? 1 : 0;
  }
  return found;
}

// The last row is sampled from, unless the run wants a vector. It waits for its mask and for a logits row.
bool last_row_waits(const Run& run, int n_logits_rows) {
  return !run.returns.vector && (!run.may_draw() || n_logits_rows == 0);
}

int n_logits_rows_of(const Sequence& sequence, int n_rows) {
  const Run& run = *sequence.run;
  if (wants_all_logits(run)) return scored_rows(sequence, n_rows, n_rows).n_logits_rows;
  return n_rows == sequence.n_left() && !run.returns.vector ? 1 : 0;
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, int max_logits_rows, KvBlocks& blocks, int max_atomic_cells)
    : options_(options),
      max_logits_rows_(max_logits_rows),
      max_rows_(std::max(options.step_tokens, options.max_running + max_atomic_cells)),
      blocks_(blocks),
      tenants_(kCreditSteps * static_cast<std::uint64_t>(options.step_tokens)) {
  IMP_CHECK(options.max_running > 0 && options.prefill_chunk > 0);
  IMP_CHECK(options.step_tokens >= options.max_running && max_logits_rows >= options.max_running);
  idle_sessions_.reserve(static_cast<std::size_t>(options.max_sessions));
  leaving_.reserve(static_cast<std::size_t>(options.max_sessions));
  n_leaving_.resize(static_cast<std::size_t>(blocks.allocator().n_blocks()));
  marks_.resize(static_cast<std::size_t>(blocks.allocator().n_blocks()));
}

void Scheduler::next_step(std::int64_t now_ns, StepPlan& plan) {
  plan.clear();
  ++n_steps_;
  Budget budget{options_.step_tokens, max_logits_rows_, options_.max_running};
  limit_sequences(budget, plan);
  const int n_kept = keep_rows(budget);
  while (choose_decodes(now_ns, std::min(budget.sequences, budget.rows)) != nullptr) {
    plan_decodes(budget, plan);
    if (!plan.rows.empty()) return;  // else its sequences find no block
  }
  plan_decodes(budget, plan);
  if (n_kept > 0) give_rows(n_kept, budget);
  limit_prefill_rows(budget, plan);
  plan_prefills(now_ns, budget, plan);
  admit(now_ns, budget, plan);
}

// A step writes the new state of each of its sequences to a slot of its own.
void Scheduler::limit_sequences(Budget& budget, const StepPlan& plan) const {
  if (!blocks_.states().is_used()) return;
  const int n_left = blocks_.states().n_available() - static_cast<int>(plan.rows.size());
  budget.sequences = std::min(budget.sequences, n_left);
}

// Goes through running_ in order. If a sequence lacks a block, it or a later one is preempted, never a sequence whose
// rows are planned already.
void Scheduler::plan_decodes(Budget& budget, StepPlan& plan) {
  bool starved = false;
  for (std::size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    if (!sequence.scheduling.is_chosen || budget.sequences == 0) {
      ++i;
      continue;
    }
    switch (allocate_blocks(sequence, plan)) {
      case Allocation::done:
        plan_rows(sequence, budget, plan);
        ++i;
        break;
      case Allocation::lacking:
        starved = true;
        ++i;
        break;
      case Allocation::removed:  // it left running_
        break;
    }
  }
  starved_ = starved;
}

bool Scheduler::next_step_displaces_nobody() const {
  return admission_displaces_nobody() && have_blocks_for_decodes();
}

bool Scheduler::have_blocks_for_decodes() const {
  int needed = 0;
  for (const Sequence* sequence : running_) {
    if (!sequence->is_runnable()) continue;
    const int missing = blocks_.missing(sequence->table, sequence->held, static_cast<int>(sequence->tokens.size()));
    if (missing > 0 && sequence->kind == SequenceKind::session && sessions_frozen()) return false;
    needed += missing;
  }
  return needed <= blocks_.n_available();
}

// A generation that does not fit waits for running ones. Any other run that does not fit is refused or evicts a
// session.
bool Scheduler::admission_displaces_nobody() const noexcept {
  const bool has_slots = used_slots() < options_.max_running || tenants_.n_active() > 1;
  if (waiting_.empty() || !has_slots) return true;
  if (paused_with_state() != nullptr) return false;
  return !may_evict() && n_running_generations() > 0 &&
         std::ranges::all_of(waiting_, [](const Sequence* one) { return one->kind == SequenceKind::generation; });
}

// Chunked prefill: a step takes as long as its rows. A whole prompt would delay the next token of every other sequence.
int Scheduler::most_prefill_rows(int n_decode_rows) const noexcept {
  // Below about this many rows, the time of a step is that of reading the weights.
  constexpr int kMin = 24;
  if (n_decode_rows == 0 || options_.prefill_per_decode == 0) return options_.step_tokens;
  return std::max(kMin, options_.prefill_per_decode * std::min(n_decode_rows, pacing_rows_));
}

void Scheduler::limit_prefill_rows(Budget& budget, const StepPlan& plan) {
  const int n_taken = std::exchange(n_taken_rows_, 0);
  if (plan.n_decode_rows == 0 || options_.prefill_per_decode == 0) return;
  budget.rows = std::min(budget.rows, std::max(0, most_prefill_rows(plan.n_decode_rows) - n_taken));
}

bool Scheduler::has_prefill() const noexcept {
  const auto is_prefill = [](const Sequence* one) { return one->n_evaluable() > 1 && !one->run->paused(); };
  const auto is_ready = [&](const Sequence* one) {
    return is_prefill(one) && !one->run->awaits_media && !one->run->awaits_scoring;
  };
  return std::ranges::any_of(running_, is_prefill) || std::ranges::any_of(waiting_, is_ready);
}

void Scheduler::plan_prefills(std::int64_t now_ns, Budget& budget, StepPlan& plan) {
  prefills_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->n_left() > 1 && sequence->n_evaluable() > 0 && !sequence->run->paused())
      prefills_.push_back(sequence);
  }
  while (!prefills_.empty() && budget.rows > 0) {
    const auto best = std::ranges::min_element(prefills_, [&](const Sequence* a, const Sequence* b) {
      const bool is_first = a == passed_over_ || b == passed_over_;
      return is_first ? a == passed_over_ : goes_before(*a, *b, now_ns);
    });
    plan_rows(**best, budget, plan);
    prefills_.erase(best);
  }
}

// Plans as many of the sequence's tokens as the budget allows, perhaps none.
void Scheduler::plan_rows(Sequence& sequence, Budget& budget, StepPlan& plan) {
  if (budget.sequences == 0) return;
  const int n_rows = sequence.run->is_whole ? whole_text(sequence, budget, plan) : chunk_of(sequence, budget, plan);
  if (n_rows <= 0) return;
  const bool last = n_rows == sequence.n_left();
  plan.rows.push_back({&sequence, n_rows, last});
  (sequence.n_left() == 1 ? plan.n_decode_rows : plan.n_prefill_rows) += n_rows;
  budget.rows -= n_rows;
  budget.sequences -= 1;
  const int n_logits_rows = n_logits_rows_of(sequence, n_rows);
  budget.logits_rows -= n_logits_rows;
  plan.n_logits_rows += n_logits_rows;
  if (!sequence.scheduling.is_chosen) sequence.scheduling.turn = next_turn_++;
  charge(sequence, n_rows);
  own_steps_.add_rows(*sequence.scheduling.tenant, n_rows, sequence.n_left() == 1);
}

int Scheduler::chunk_of(const Sequence& sequence, Budget& budget, const StepPlan& plan) const noexcept {
  const Run& run = *sequence.run;
  int n_rows = std::min({sequence.n_evaluable(), options_.prefill_chunk, budget.rows});
  if (wants_all_logits(run)) n_rows = scored_rows(sequence, n_rows, budget.logits_rows).n_rows;
  if (n_rows == sequence.n_left() && last_row_waits(run, budget.logits_rows)) --n_rows;
  return n_rows > 0 ? uncut(sequence, n_rows, budget, plan) : n_rows;
}

// All rows of a text that must not be cut, or none. They may exceed what decode rows leave to prompts, once in a step.
// The first text that finds no room in a step has it in the next one.
int Scheduler::whole_text(Sequence& sequence, Budget& budget, const StepPlan& plan) noexcept {
  const int n_rows = sequence.n_left();
  const bool fits = n_rows <= budget.rows;
  const bool may_exceed = budget.may_exceed && plan.n_rows() + n_rows <= options_.step_tokens;
  if (fits || may_exceed) {
    if (!fits) budget.may_exceed = false;
    if (passed_over_ == &sequence) passed_over_ = nullptr;
    return n_rows;
  }
  if (passed_over_ == nullptr && n_rows > 1) passed_over_ = &sequence;
  return 0;
}

// Takes the rows of the text that was passed over out of the budget. Returns their number.
int Scheduler::keep_rows(Budget& budget) noexcept {
  if (passed_over_ != nullptr && passed_over_->run->paused()) passed_over_ = nullptr;
  if (passed_over_ == nullptr || budget.sequences == 0) return 0;
  const int n_rows = passed_over_->n_left();
  budget.rows -= n_rows;
  --budget.sequences;
  return n_rows;
}

void Scheduler::give_rows(int n_rows, Budget& budget) noexcept {
  budget.rows += n_rows;
  ++budget.sequences;
}

// An atomic span is evaluated as a whole: n_rows ends before it, or behind it. Then the rows may exceed the budget,
// once in a step: a span that is longer than any budget must not wait for ever.
int Scheduler::uncut(const Sequence& sequence, int n_rows, Budget& budget, const StepPlan& plan) const noexcept {
  const int cut = sequence.held + n_rows;
  const MediaSpan* const span = sequence.media.span_at(cut);
  if (span == nullptr || !span->is_atomic || span->first == cut) return n_rows;
  if (span->first > sequence.held) return span->first - sequence.held;
  const int whole = span->end() - sequence.held;
  if (whole == sequence.n_left() && last_row_waits(*sequence.run, budget.logits_rows)) return 0;
  if (whole <= budget.rows) return whole;
  if (!budget.may_exceed || plan.n_rows() + whole > max_rows_) return 0;
  budget.may_exceed = false;
  return whole;
}

Scheduler::Allocation Scheduler::allocate_blocks(Sequence& sequence, StepPlan& plan) {
  const auto end = static_cast<int>(sequence.tokens.size());
  for (;;) {
    const int needed = blocks_.missing(sequence.table, sequence.held, end);
    const int available = blocks_.n_available();
    const bool frozen = sequence.kind == SequenceKind::session && needed > 0 && sessions_frozen();
    if (!frozen && evict_sessions(sequence, needed, plan)) break;
    if (sequence.kind == SequenceKind::session) {
      remove(sequence);
      plan.refused.push_back({&sequence, needed, available});
      return Allocation::removed;
    }
    Sequence* preempted = victim();
    if (preempted == nullptr) return Allocation::lacking;
    preempt(*preempted);
    if (preempted == &sequence) return Allocation::removed;
  }
  blocks_.prepare(sequence.table, sequence.held, end, plan.copies);
  return Allocation::done;
}

// The newest generation of the lowest priority, unless it is also the oldest of the highest.
Sequence* Scheduler::victim() const noexcept {
  const auto is_generation = [](const Sequence* sequence) { return sequence->kind == SequenceKind::generation; };
  const auto newest = std::find_if(running_.rbegin(), running_.rend(), is_generation);
  const auto oldest = std::ranges::find_if(running_, is_generation);
  return oldest == running_.end() || *newest == *oldest ? nullptr : *newest;
}

}  // namespace imp

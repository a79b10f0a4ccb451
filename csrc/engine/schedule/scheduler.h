// Decides what the next step evaluates, and which sequences are admitted, preempted or evicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/engine_options.h"
#include "engine/kv/kv_blocks.h"
#include "engine/schedule/own_steps.h"
#include "engine/schedule/step_plan.h"
#include "engine/schedule/tenants.h"
#include "engine/sequence/sequence.h"

namespace imp {

// A pure object: no clock, no thread, no device. next_step depends only on earlier calls and the given time.
//
// Continuous batching with chunked prefill (Sarathi-Serve, "Taming Throughput-Latency Tradeoff in LLM Inference with
// Sarathi-Serve"). A step decodes every runnable sequence and spends the remaining rows on prefill chunks. A step with
// decode rows takes few prefill rows, so that the time between two tokens of a sequence stays about the same.
//
// If several tenants have work, the decode rows of a step are bounded: for each tenant decode_per_tenant rows, or as
// many as the tenant with the fewest sequences wants, whichever is more. Each tenant gets an equal part of these rows.
// Rows that a tenant does not want go to the others. The sequences of a tenant take turns. If such steps are too slow
// for a tenant, it gets steps of its own between them.
//
// Admission is in order of priority, then of the service that the tenants have had (least first), then of arrival. A
// run that has waited for max_wait goes first. At most max_running sequences run, and one less than there are slots of
// recurrent state: each holds one, and a step writes to at least one more. A paused generation loses its slot to a run
// that waits. A tenant that runs fewer than an equal part of max_running may exceed this limit, up to twice max_running
// in all. A generation waits until its tokens and a decode reserve fit. A session takes the blocks that it needs or is
// refused.
//
// A text whose rows must not be cut is evaluated as a whole or not at all. The first one that finds no room has the
// first rows of the next step, so that shorter ones do not overtake it for ever.
//
// If a running generation lacks a block, the newest generation of the lowest priority is preempted, but never the
// oldest of the highest. Until it runs again no session takes blocks. If another tenant lacks blocks, a tenant that
// holds more than its share of them in idle sessions loses such sessions, the longest idle first.
class Scheduler {
 public:
  // At most max_logits_rows rows of a step have logits. max_atomic_cells: of a span of media; 0: there is none.
  Scheduler(const EngineOptions& options, int max_logits_rows, KvBlocks& blocks, int max_atomic_cells = 0);

  // Queues the sequence's run for admission. Its siblings wait with it.
  void enqueue(Sequence& sequence, std::int64_t now_ns);
  // The sibling runs by itself: the leader's prompt is evaluated and shared.
  void join(Sequence& sibling);
  // The sequence's run has ended, whether it was running or waiting.
  void remove(Sequence& sequence);
  // A session ended its run, or begins one. Only an idle session is evicted.
  void set_idle(Sequence& session, std::int64_t now_ns);
  void set_busy(Sequence& session);

  // Whether one more waiting run would exceed this tenant's share of n_slots while other tenants wait.
  bool over_waiting_share(const std::string& tenant, int n_slots) const;

  void next_step(std::int64_t now_ns, StepPlan& plan);
  // Counts rows that were added to a plan as service of the sequence's tenant.
  void charge(const Sequence& sequence, int n_rows) { tenants_.charge(*sequence.scheduling.tenant, n_rows); }
  static void count_right_guess(const Sequence& sequence) { OwnSteps::add_right_guess(*sequence.scheduling.tenant); }
  // Whether next_step would preempt, evict and refuse nobody.
  bool next_step_displaces_nobody() const;
  // Takes the blocks of a running generation. It returns to the head of the queue and is recomputed.
  void preempt(Sequence& victim);
  // The same, not for the sake of another run.
  void requeue(Sequence& sequence);
  // Calls visit(sequence) for each of them.
  template <class Visit>
  void for_each_running(const Visit& visit) {
    for (Sequence* sequence : running_) visit(*sequence);
  }
  template <class Visit>
  void for_each_waiting(const Visit& visit) {
    for (Sequence* sequence : waiting_) visit(*sequence);
  }
  // Whether the one is admitted, or has its prompt evaluated, before the other.
  bool goes_before(const Sequence& a, const Sequence& b, std::int64_t now_ns) const noexcept;
  // Whether a waiting run is admitted as soon as there is room.
  bool may_start(const Sequence& sequence) const noexcept;
  // Whether the next step can evaluate tokens of prompts.
  bool has_prefill() const noexcept;
  // The rows of prompts in a step with so many decode rows.
  int most_prefill_rows(int n_decode_rows) const noexcept;
  // The next step has this many fewer of them: other work has taken their time.
  void take_prefill_rows(int n_rows) noexcept { n_taken_rows_ = n_rows; }
  // The waiting run whose prompt is to be scored next; null: there is none.
  Sequence* next_to_score(std::int64_t now_ns) const noexcept;

  int n_running() const noexcept { return static_cast<int>(running_.size()); }
  int n_waiting() const noexcept { return static_cast<int>(waiting_.size()); }
  std::size_t n_idle_sessions() const noexcept { return idle_sessions_.size(); }
  // Sequences that run or wait, including the siblings that wait for their leader's prompt.
  std::size_t n_sequences() const noexcept { return running_.size() + static_cast<std::size_t>(tenants_.n_waiting()); }
  std::uint64_t n_preemptions() const noexcept { return n_preemptions_; }

 private:
  void reserve_queues(std::size_t n_more);
  struct Budget {
    int rows = 0;
    int logits_rows = 0;
    int sequences = 0;
    bool may_exceed = true;  // one atomic span or whole text of a step may exceed the rows
  };
  enum class Allocation : std::uint8_t { done, lacking, removed };
  enum class Admission : std::uint8_t { admitted, blocked, refused };

  bool have_blocks_for_decodes() const;
  bool admission_displaces_nobody() const noexcept;
  const Tenant* choose_decodes(std::int64_t now_ns, int n_slots);
  void find_busy_tenants();
  int rows_per_tenant() noexcept;
  int n_reserved(int n_slots, int each) const noexcept;
  void distribute_rows(int n_rows);
  void choose_sequences();
  void limit_sequences(Budget& budget, const StepPlan& plan) const;
  void plan_decodes(Budget& budget, StepPlan& plan);
  void limit_prefill_rows(Budget& budget, const StepPlan& plan);
  void plan_prefills(std::int64_t now_ns, Budget& budget, StepPlan& plan);
  void plan_rows(Sequence& sequence, Budget& budget, StepPlan& plan);
  int chunk_of(const Sequence& sequence, Budget& budget, const StepPlan& plan) const noexcept;
  int whole_text(Sequence& sequence, Budget& budget, const StepPlan& plan) noexcept;
  int keep_rows(Budget& budget) noexcept;
  static void give_rows(int n_rows, Budget& budget) noexcept;
  int uncut(const Sequence& sequence, int n_rows, Budget& budget, const StepPlan& plan) const noexcept;
  Allocation allocate_blocks(Sequence& sequence, StepPlan& plan);
  Sequence* victim() const noexcept;

  void admit(std::int64_t now_ns, Budget& budget, StepPlan& plan);
  // The state of one admission pass, which decides which waiting runs are passed over.
  struct AdmissionPass {
    int n_used = 0;              // slots taken
    bool is_full = false;        // no slot for a run; from then on only tenants below their equal share are admitted
    bool sessions_only = false;  // a generation waits for blocks and no other may overtake it
  };
  Sequence* next_waiting(std::int64_t now_ns, const AdmissionPass& pass) const noexcept;
  bool has_slot(const Sequence& sequence, int n_used) const noexcept;
  bool has_equal_share(const Sequence& sequence, int n_used) const noexcept;
  bool has_state_slots(const Sequence& sequence) const noexcept;
  Sequence* paused_with_state() const noexcept;
  Admission try_admit(Sequence& sequence, StepPlan& plan);
  bool fits(Sequence& sequence, StepPlan& plan, int& needed);
  int needed_blocks(const Sequence& sequence) const;
  bool find_prefix(Sequence& sequence);
  // What closing an idle session frees, from least to most.
  enum class Freed { nothing, blocks_with_others, blocks };
  Freed freed_by(const Sequence& session) const;
  Sequence* longest_idle(std::span<Sequence* const> sessions) const;
  int blocks_held(std::span<Sequence* const> sessions);
  Sequence* longest_idle_above_share(const Sequence& wanting);
  int owners_left(std::int32_t block) const;
  int mark_leaving(Sequence& session);
  bool evict_sessions(const Sequence& wanting, int n_needed, StepPlan& plan);
  bool may_evict() const noexcept;
  void start_running(Sequence& sequence);
  void leave_running(Sequence& sequence) noexcept;
  void leave_queue(Sequence& sequence);

  bool over_share(const Sequence& sequence) const noexcept;
  bool sessions_frozen() const noexcept;
  int n_running_generations() const noexcept;
  int used_slots() const noexcept;

  EngineOptions options_;
  int max_logits_rows_;
  int max_rows_;  // of a step with an atomic span
  KvBlocks& blocks_;
  Tenants tenants_;
  OwnSteps own_steps_;
  std::vector<Sequence*> running_;        // by priority, then order
  Sequence* passed_over_ = nullptr;       // of them: the text that has the first rows of the next step; null: none
  std::vector<Sequence*> waiting_;        // in no order
  std::vector<Sequence*> idle_sessions_;  // idle sessions, in no order
  std::vector<Sequence*> leaving_;        // scratch of evict_sessions: idle sessions that end if they free enough
  std::vector<int> n_leaving_;            // per block: owners that are in leaving_
  std::vector<Sequence*> prefills_;       // scratch of plan_prefills
  std::vector<Sequence*> decodes_;        // scratch of choose_decodes
  std::vector<Tenant*> busy_tenants_;     // scratch of choose_decodes: tenants with work for the step
  std::vector<std::uint64_t> marks_;      // scratch of blocks_held: per block, the last count that included it
  std::uint64_t last_mark_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t next_turn_ = 0;
  std::uint64_t n_steps_ = 0;
  std::int64_t last_step_ns_ = 0;  // when next_step was last called
  int n_taken_rows_ = 0;           // of prompts, by other work since the last step
  int pacing_rows_ = 0;            // set by choose_decodes: the decode rows that limit the prefill rows
  std::uint64_t n_preemptions_ = 0;
  bool starved_ = false;  // a running generation lacked a block and nobody could be preempted

  // The generation that last did not fit, and the blocks available then. It is tried again when these change.
  const Sequence* blocked_ = nullptr;
  int blocked_available_ = 0;
};

}  // namespace imp

// Runs steps, and turns failures into events.
#include "engine/run/loop.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "engine/data/failure.h"
#include "engine/run/reserve_more.h"

namespace imp {
namespace {

// A model without a head draws nothing, so nothing is guessed, and a vector is of the whole text.
EngineOptions usable(EngineOptions options, const ForwardPass& forward) {
  if (forward.vocab_size() > 0) return options;
  options.drafters.clear();
  options.suppressed_tokens.clear();
  options.sparse_prefill = false;
  return options;
}

KvBlocksOptions block_options(const EngineOptions& options, const ForwardPass& forward) {
  const int max_cached = std::min(options.n_blocks, options.max_cached_blocks);
  return {.n_blocks = options.n_blocks,
          .block_tokens = forward.kv_geometry(options.n_blocks, options.n_state_slots).block_tokens,
          // Rows that see what follows them are of one text alone.
          .prefix_cache = options.prefix_cache && !forward.pooling().sees_all,
          .max_cached = options.max_cached_blocks,
          .max_per_tenant = std::max(1, static_cast<int>(options.tenant_share * max_cached)),
          .n_state_slots = options.n_state_slots};
}

ResourceExhausted kv_full(const Refusal& refusal) {
  const std::string needed = std::to_string(refusal.needed);
  const std::string available = std::to_string(refusal.available);
  return {Reason::KV_FULL,
          needed + " blocks are needed, " + available + " are available",
          {{"needed", needed}, {"available", available}}};
}

}  // namespace

Loop::Loop(Backend& backend, ForwardPass& forward, const EngineOptions& options, const HashSecret& secret,
           AdmissionControl& admission, Clock clock, Drafters drafters, std::unique_ptr<PromptScorer> scorer,
           MediaEncoder* encoder)
    : options_(usable(options, forward)),
      clock_(std::move(clock)),
      state_{.options = options_,
             .admission = admission,
             .pooling = forward.pooling(),
             .blocks = KvBlocks(block_options(options, forward), keyed_block_hash(secret)),
             .scheduler = Scheduler(options, forward.limits().max_logits_rows, state_.blocks,
                                    encoder ? encoder->facts().max_atomic_cells : 0),
             .sequences = {},
             .events = {},
             .stats = {}},
      saves_(state_.blocks, options.state_snapshot_tokens),
      speculation_(state_, forward.limits().max_logits_rows, std::move(drafters), clock_),
      sparse_(state_, speculation_, std::move(scorer), clock_),
      media_(state_, backend, encoder, clock_),
      runs_(state_, saves_, speculation_, sparse_, media_),
      sessions_(state_, runs_),
      executor_(backend, forward, saves_, state_.blocks,
                {.max_rows = forward.limits().max_rows,
                 .max_logits_rows = forward.limits().max_logits_rows,
                 .max_running = options.max_running},
                options_.suppressed_tokens.empty() ? TokenMask{}
                                                   : mask_without(options_.suppressed_tokens, forward.vocab_size()),
                clock_, &media_),
      recorder_(backend),
      lookahead_(2 * static_cast<std::size_t>(options.max_running)) {
  speculation_.read_cache(executor_.pool());
  // At most 2 · max_running sequences run: tenants below their equal share may exceed max_running.
  const std::size_t max_sequences = 2 * static_cast<std::size_t>(options.max_running);
  const auto step_tokens = static_cast<std::size_t>(options.step_tokens);
  const std::size_t max_draws = max_sequences + static_cast<std::size_t>(forward.limits().max_logits_rows);
  const std::size_t max_saves = saves_.max_saves(step_tokens, max_sequences, speculation_.max_guesses());
  for (Step& step : steps_) step.reserve(max_sequences, max_draws, max_saves);
  plan_.rows.reserve(max_sequences);
  // A sequence copies its last block before it writes to it, or all that it evaluates again for the recurrent state.
  plan_.copies.reserve(max_sequences + static_cast<std::size_t>(options.n_state_slots > 0 ? options.n_blocks : 0));
  plan_.admitted.reserve(max_sequences);
  plan_.evicted.reserve(static_cast<std::size_t>(options.max_sessions));
  // Sequences that run or wait. More are possible: sequences that run in the slots of paused ones.
  const auto most = static_cast<std::size_t>(options.max_running) + static_cast<std::size_t>(options.max_waiting);
  plan_.refused.reserve(most);
  state_.events.reserve(2 * (events_of_iteration() + most));
}

// For each running sequence: started, token, and finished or drafted; for each guess a token. In addition any sequence
// may be refused, any idle session evicted, and a profile may end.
std::size_t Loop::events_of_iteration() const noexcept {
  return 3 * static_cast<std::size_t>(options_.max_running) + speculation_.max_guesses() +
         state_.scheduler.n_sequences() + state_.scheduler.n_idle_sessions() + 1;
}

// Returns false if there is no memory for the plan and the events of an iteration. The iteration itself allocates
// nothing.
bool Loop::reserve_for_iteration() noexcept {
  plan_.clear();
  return reserve_more(state_.events, events_of_iteration()) &&
         reserve_more(plan_.refused, state_.scheduler.n_sequences());
}

bool Loop::iterate() {
  const bool is_idle = state_.scheduler.n_running() + state_.scheduler.n_waiting() == 0;
  if (is_idle && in_flight_ == nullptr) return false;
  if (!reserve_for_iteration()) return true;  // memory may be free once the commands' events are published
  const bool has_scored = sparse_.advance();
  const bool has_encoded = encode();
  Step& step = in_flight_ != nullptr ? *in_flight_ : steps_.front();
  std::exception_ptr thrown;
  if (in_flight_ != nullptr) {
    drop_ended_rows(step);
  } else {
    step.begun_ns = clock_();
    step.is_held_back = std::exchange(is_held_back_, false);
    plan_step();
    if (plan_.rows.empty()) return has_scored || has_encoded || !plan_.refused.empty() || !plan_.evicted.empty();
    speculation_.extend(plan_);
    thrown = begin(step);
  }
  if (thrown) {
    end_failed(step, thrown);
  } else {
    in_flight_ = begin_after(step);
    end(step);
  }
  const std::int64_t step_ns = count(step);
  if (thrown) return true;
  speculation_.learn(step, step_ns);
  sparse_.learn(step, step_ns);
  media_.learn(step, step_ns);
  return true;
}

// Returns false if no medium waits to be encoded.
bool Loop::encode() {
  const bool has_encoded = media_.advance();
  if (!media_.failure()) return has_encoded;
  while (Sequence* sequence = media_.run_of_failure()) runs_.fail(*sequence, *media_.failure());
  return true;
}

void Loop::plan_step() {
  state_.now_ns = clock_();
  state_.scheduler.next_step(state_.now_ns, plan_);
  for (Sequence* sequence : plan_.admitted) runs_.on_scheduled(*sequence);
  for (Sequence* session : plan_.evicted) sessions_.evicted(*session);
  for (const Refusal& refusal : plan_.refused) {
    runs_.fail(*refusal.sequence, failure_of(Reason::NO_MEMORY, [&refusal] { return kv_full(refusal); }));
  }
  // If a copy fails, a sequence lacks its content. That stops the engine.
  speculation_.copy_blocks(plan_.copies);
  executor_.copy_blocks(plan_.copies);
}

// Returns errors of the batch. Throws device errors: after one the device's memory can no longer be trusted.
std::exception_ptr Loop::begin(Step& step) {
  step.n_decode_rows = plan_.n_decode_rows;
  step.n_prefill_rows = plan_.n_prefill_rows;
  step.n_guess_rows = plan_.n_guess_rows;
  step.is_recorded = recorder_.is_recording();
  try {
    executor_.begin(plan_.rows, step);
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Starts the step after `step` while `step` is in flight. Returns null if it has to wait. If it fails, a later
// iteration plans it again.
Step* Loop::begin_after(const Step& step) {
  if (!executor_.runs_ahead()) return nullptr;
  const bool is_possible = Lookahead::is_possible(step);
  is_held_back_ = step.n_guess_rows > 0 || (is_possible && speculation_.may_follow(step));
  if (!is_possible || is_held_back_) return nullptr;
  Step& next = &step == &steps_.front() ? steps_.back() : steps_.front();
  next.begun_ns = clock_();
  next.is_held_back = false;
  lookahead_.assume(step, options_.max_context);
  bool has_begun = false;
  if (state_.scheduler.next_step_displaces_nobody()) {
    plan_step();
    has_begun = !plan_.rows.empty() && begin(next) == nullptr;
  }
  lookahead_.undo();
  state_.stats.n_steps_ahead += has_begun ? 1 : 0;
  return has_begun ? &next : nullptr;
}

void Loop::end(Step& step) {
  executor_.finish(step);
  state_.now_ns = clock_();
  complete(step);
}

void Loop::complete(Step& step) {
  const std::size_t first_event = state_.events.size();
  runs_.complete(step.rows, step.draws, step.scores);
  speculation_.count(step);
  speculation_.observe(step);
  speculation_.ask(first_event);
}

// Drops the rows of runs that ended after the step began.
void Loop::drop_ended_rows(Step& step) {
  std::size_t n_rows = 0, n_draws = 0, next_draw = 0;
  for (StepRow& row : step.rows) {
    const std::size_t first_draw = std::exchange(next_draw, next_draw + static_cast<std::size_t>(row.n_draws));
    const Sequence* found = state_.find(row.id);
    const bool is_there = found == row.planned.sequence && found->run && found->run->ticket == row.ticket &&
                          found->held == row.first_position && found->scheduling.phase == RunPhase::running;
    if (is_there) {
      step.rows[n_rows++] = row;
    } else {
      saves_.release(row);
    }
    for (std::size_t i = first_draw; i < next_draw; ++i) {
      Draw& draw = step.draws[i];
      if (!is_there && draw.is_drawn()) step.requests[static_cast<std::size_t>(draw.request)].candidates = {};
      if (is_there && i != n_draws) step.draws[n_draws] = std::move(draw);
      if (is_there) ++n_draws;
    }
  }
  step.rows.resize(n_rows);
  step.draws.resize(n_draws);
}

// A batch failed as a whole and changed nothing. Run its rows one by one and without guesses, so that only the culprit
// fails.
void Loop::end_failed(Step& step, const std::exception_ptr& thrown) {
  state_.now_ns = clock_();
  const bool had_guesses = speculation_.withdraw(plan_);
  step.n_guess_rows = 0;
  if (plan_.rows.size() == 1 && !had_guesses) return runs_.fail_step(*plan_.rows.front().sequence, failure_of(thrown));
  for (const PlannedRows& planned : plan_.rows) {
    try {
      executor_.begin({&planned, 1}, step);
      executor_.finish(step);
    } catch (const DeviceError&) {
      throw;
    } catch (...) {
      runs_.fail_step(*planned.sequence, failure_of(std::current_exception()));
      continue;
    }
    complete(step);
  }
}

// Returns the time of the step.
std::int64_t Loop::count(const Step& step) {
  EngineStats& stats = state_.stats;
  // A step that began early also waited for the step before it.
  const std::int64_t begin = std::max(step.begun_ns, stats.last_step_ns);
  ++stats.n_steps;
  stats.n_decode_rows += static_cast<std::uint64_t>(step.n_decode_rows);
  stats.n_prefill_rows += static_cast<std::uint64_t>(step.n_prefill_rows);
  stats.last_step_ns = clock_();
  const std::int64_t step_ns = stats.last_step_ns - begin;
  stats.step_ns += step_ns;
  stats.steps.add(step_ns);
  if (!step.is_recorded || !recorder_.is_recording()) return step_ns;
  recorder_.add({.whole = {begin, stats.last_step_ns},
                 .forward = step.forward,
                 .sample = step.sample,
                 .n_decode_rows = step.n_decode_rows,
                 .n_prefill_rows = step.n_prefill_rows,
                 .n_guess_rows = step.n_guess_rows},
                state_.events);
  return step_ns;
}

const EngineStats& Loop::stats() {
  EngineStats& stats = state_.stats;
  const BlockAllocator& blocks = state_.blocks.allocator();
  stats.running = state_.scheduler.n_running();
  stats.waiting = state_.scheduler.n_waiting();
  stats.sessions = state_.admission.sessions();
  stats.n_preemptions = state_.scheduler.n_preemptions();
  stats.blocks_live = blocks.n_live();
  stats.blocks_cached = blocks.n_cached();
  stats.blocks_free = blocks.n_free();
  const StateSlots& states = state_.blocks.states();
  stats.states_held = states.n_held();
  stats.states_kept = states.n_snapshots();
  stats.states_free = states.n_free();
  stats.queued = state_.admission.waiting();
  stats.waiting_tokens = state_.admission.waiting_tokens();
  stats.forward_ns = executor_.forward_ns();
  stats.sample_ns = executor_.sample_ns();
  stats.graphs = executor_.graphs();
  stats.media_bytes = media_.n_bytes_kept();
  return stats;
}

void Loop::stop(const Error& error) noexcept {
  state_.stats.stopped = true;
  in_flight_ = nullptr;
  lookahead_.undo();
  try {
    for (;;) {
      const auto running =
          std::ranges::find_if(state_.sequences, [](const auto& entry) { return entry.second->run.has_value(); });
      if (running == state_.sequences.end()) break;
      runs_.fail(*running->second, failure_of(error.reason(), [&error] { return error; }));
    }
    recorder_.begin({}, state_.events);  // sends what was recorded
  } catch (...) {
    // There is no memory to report it. Clients see `stopped` in the stats.
  }
}

}  // namespace imp

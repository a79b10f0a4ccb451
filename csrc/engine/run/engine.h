// The engine: one thread that takes commands, runs steps (continuous batching) and queues events. Iteration-level
// scheduling follows Orca ("Orca: A Distributed Serving System for Transformer-Based Generative Models").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/data/commands.h"
#include "engine/data/duration_histogram.h"
#include "engine/data/engine_options.h"
#include "engine/data/events.h"
#include "engine/schedule/queue_places.h"
#include "engine/sparse/prompt_scorer.h"
#include "engine/speculation/drafter.h"
#include "model/forward_pass.h"

namespace imp {

// A snapshot, published after each iteration. silence_ns is computed when it is read.
struct EngineStats {
  std::uint64_t n_steps = 0;
  std::uint64_t n_steps_ahead = 0;  // steps that began before the results of the step before were read
  std::uint64_t n_decode_rows = 0;
  std::uint64_t n_prefill_rows = 0;
  std::uint64_t n_cached_tokens = 0;
  std::uint64_t n_outputs = 0;
  std::uint64_t n_preemptions = 0;
  DraftCounts drafts;
  CountsByDrafter drafters;
  SkipCounts draft_skips{};     // by DraftSkip
  std::int64_t draft_ns = 0;    // total time of choosing and making guesses
  std::uint64_t n_wakeups = 0;  // times the eventfd was signalled
  int running = 0;
  int waiting = 0;
  int queued = 0;  // sequences accepted and not yet scheduled, as of now, not of the last step
  int sessions = 0;
  int blocks_live = 0;
  int blocks_cached = 0;
  int blocks_free = 0;
  int states_held = 0;  // slots of recurrent state that sequences hold,
  int states_kept = 0;  // those kept as snapshots,
  int states_free = 0;  // and the others; all 0 if the model has none
  std::int64_t waiting_tokens = 0;
  std::int64_t last_step_ns = 0;  // the clock at the end of the last step
  std::int64_t forward_ns = 0;    // total in forward passes
  std::int64_t sample_ns = 0;     // total in the backend's sampler
  std::int64_t step_ns = 0;       // total in steps
  // Time since the thread began its current work: a command or a step. 0 if it is idle, or if it waits for a reader to
  // drain the events.
  std::int64_t silence_ns = 0;
  std::optional<StepGraphCounts> graphs;  // since the backend was made; empty if the backend captures no graphs
  DurationHistogram steps;
  DurationHistogram cancels;  // time from the cancel command until the blocks are free
  bool stopped = false;       // after a device error or an internal error; nothing runs any more
};

// submit and drain_events may be called from any thread. The engine's thread never waits for a caller and never takes
// the GIL. It pauses only while max_queued_events wait to be drained.
class Engine {
 public:
  // The backend and the forward pass outlive the engine. The engine owns the KV pool it makes on the backend. `scorer`
  // is needed for sparse prefill.
  Engine(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock clock = {}, Drafters drafters = {},
         std::unique_ptr<PromptScorer> scorer = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the command and queues it. Throws InvalidArgument, or ResourceExhausted (QUEUE_FULL, SESSIONS_FULL, or
  // KV_FULL if the request can never fit). Errors that depend on a sequence's state arrive as events.
  void submit(Command command);
  // Queues all commands in order, or none if it throws.
  void submit(std::vector<Command> commands);

  // Commands submitted between hold() and release() are taken together, so that their runs begin in the same step. Each
  // command is still checked and queued by itself. Steps of earlier commands continue meanwhile. Keep the hold short.
  void hold();
  void release();

  // Moves all queued events, oldest first, into `out`, and reuses the memory of `out` for later events. Never waits.
  void drain_events(std::vector<Event>& out);

  // An eventfd that is readable while events wait.
  int event_descriptor() const noexcept;

  EngineStats stats() const;
  // Where one more run of the tenant would stand in the queue, after n_coming sequences that are about to come, n_own
  // of them the tenant's.
  QueuePlace place_of(const std::string& tenant, int n_own, int n_coming) const;

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace imp

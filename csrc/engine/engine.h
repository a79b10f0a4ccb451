// Sequences through time: one thread takes commands, runs steps and queues events.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "engine/block_hash.h"
#include "engine/commands.h"
#include "engine/duration_histogram.h"
#include "engine/events.h"
#include "model/forward_pass.h"

namespace imp {

struct EngineOptions {
  int n_blocks = 0;       // KV blocks
  int max_context = 0;    // no position at or beyond it is evaluated
  int max_running = 64;   // sequences in one step
  int max_waiting = 256;  // runs not yet admitted
  std::int64_t max_waiting_tokens = 1 << 20;
  int max_sessions = 256;
  int prefill_chunk = 512;           // tokens of one sequence evaluated in one step
  int step_tokens = 512;             // rows of one step, decode rows included; at least max_running
  int prefill_per_decode = 6;        // rows of prompts for each decode row of the same step; 0: as many as fit
  int decode_per_tenant = 12;        // decode rows per tenant in a step that several tenants share; 0: no bound
  std::int64_t max_wait_ms = 60000;  // a run that waited this long goes before higher priorities
  double tenant_share = 0.5;         // most of running, waiting, prefix cache and idle sessions while others want them
  bool evict_sessions = false;       // close the longest idle session where blocks are lacking
  bool prefix_cache = true;
  int max_cached_blocks = std::numeric_limits<int>::max();  // kept for reuse while nobody holds them
  int max_candidates = 20;                                  // the most that a run may ask for
  std::optional<HashSecret> cache_secret;                   // of the prefix keys; absent: drawn from the system
  int max_queued_events = 65536;                            // the loop pauses where nobody drains them
  int n_tokens = 0;                             // valid token ids are below it; 0: every row of the model is a token
  std::vector<std::int32_t> suppressed_tokens;  // never drawn
  std::optional<int> cpu;                       // where the engine's thread stays, the first of the backend's team
};

// A snapshot published after each turn; silence is as of now.
struct EngineStats {
  std::uint64_t n_steps = 0;
  std::uint64_t n_steps_ahead = 0;  // of these, begun before the one before was read
  std::uint64_t n_decode_rows = 0;
  std::uint64_t n_prefill_rows = 0;
  std::uint64_t n_cached_tokens = 0;
  std::uint64_t n_outputs = 0;
  std::uint64_t n_preemptions = 0;
  std::uint64_t n_wakeups = 0;  // times the event descriptor was rung
  int running = 0;
  int waiting = 0;
  int queued = 0;  // sequences of runs that were accepted and not yet scheduled: as of now, not of the last step
  int sessions = 0;
  int blocks_live = 0;
  int blocks_cached = 0;
  int blocks_free = 0;
  std::int64_t waiting_tokens = 0;
  std::int64_t last_step_ns = 0;  // the clock at the end of the last step
  std::int64_t forward_ns = 0;    // in forward passes, in all
  std::int64_t sample_ns = 0;     // in the backend's sampler, in all
  std::int64_t step_ns = 0;       // in steps, in all
  // Since the thread began with what it is at: a command that waits for it, or the step it is in. 0 where there is
  // nothing to do, or nothing that may be done before somebody drains the events.
  std::int64_t silence_ns = 0;
  std::optional<StepGraphCounts> graphs;  // of the backend since it was made; empty where it captures no steps
  DurationHistogram steps;
  DurationHistogram cancels;  // of runs, from the command to their blocks being free
  bool stopped = false;       // after a device's fault or an error of its own; nothing runs any more
};

// submit and drain may be called from any thread. The engine's thread never waits for a caller: it never takes
// Python's lock, and it stops stepping only where max_queued_events wait to be drained.
class Engine {
 public:
  using Clock = std::function<std::int64_t()>;  // nanoseconds, monotonic

  // The backend and the forward pass outlive the engine. The engine owns the KV pool it makes on the backend.
  Engine(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock clock = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the command and queues it. Throws InvalidArgument, or ResourceExhausted (QUEUE_FULL, SESSIONS_FULL; KV_FULL
  // for what can never fit). What depends on a sequence's state is told as an event.
  void submit(Command command);
  // Several commands one after the other, all or, where it throws, none.
  void submit(std::vector<Command> commands);

  // What is submitted between hold() and let_go() is taken at once, so that the runs among it begin in one step. Each
  // command is checked and refused by itself. Steps go on meanwhile; the hold is to be short.
  void hold();
  void let_go();

  // Takes all queued events, oldest first, into `out`, and keeps out's memory for those to come. Never waits.
  void drain_events(std::vector<Event>& out);

  // Readable (an eventfd) while events wait.
  int event_descriptor() const noexcept;

  EngineStats stats() const;

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace imp

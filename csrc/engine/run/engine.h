// The engine: one thread that takes commands, runs steps (continuous batching) and queues events. Iteration-level
// scheduling follows Orca ("Orca: A Distributed Serving System for Transformer-Based Generative Models").
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/data/commands.h"
#include "engine/data/engine_options.h"
#include "engine/data/engine_stats.h"
#include "engine/data/events.h"
#include "engine/schedule/queue_places.h"
#include "engine/sparse/prompt_scorer.h"
#include "engine/speculation/drafter.h"
#include "model/forward_pass.h"
#include "model/media_encoder.h"

namespace imp {

// submit and drain_events may be called from any thread. The engine's thread never waits for a caller and never takes
// the GIL. It pauses only while max_queued_events wait to be drained.
class Engine {
 public:
  // The backend, the forward pass and the encoder outlive the engine. The engine owns the KV pool it makes on the
  // backend. `scorer` is needed for sparse prefill, `encoder` for media; null: the model takes none.
  Engine(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock clock = {}, Drafters drafters = {},
         std::unique_ptr<PromptScorer> scorer = {}, MediaEncoder* encoder = nullptr);
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

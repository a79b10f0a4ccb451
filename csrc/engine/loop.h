// Everything that the engine's thread does, without the thread: a test may turn it by hand.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/runs.h"
#include "engine/sessions.h"
#include "engine/step.h"
#include "engine/step_recorder.h"

namespace imp {

// Throws InvalidArgument where the options contradict each other, the model or the pool.
void validate(const EngineOptions& options, const ForwardPass& forward);

// Used by one thread. What passed the door is taken between turns; a turn runs at most one step.
class Loop {
 public:
  // The door was made with the same options, and the same secret.
  Loop(Backend& backend, ForwardPass& forward, const EngineOptions& options, const HashSecret& secret, Door& door,
       Engine::Clock clock);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void take(Accepted accepted);

  // True where something was done: there may be more. False: nothing changes before a command comes.
  bool turn();

  // What happened since the caller emptied it.
  std::vector<Event>& events() noexcept { return state_.events; }
  const EngineStats& stats();

  // After an error of the engine itself, or a device's: every run ends with it, and the stats say so from now on.
  void stop(const Error& error) noexcept;

  const KvPool& pool() const noexcept { return step_.pool(); }
  // For tests that turn the loop by hand.
  EngineState& state() noexcept { return state_; }

 private:
  void run_step();
  void run_one_by_one();
  std::size_t events_of(const Command& command) noexcept;
  std::size_t events_of_turn() const noexcept;
  bool make_room_for_turn() noexcept;
  void dispatch(Accepted& accepted);

  EngineOptions options_;
  Engine::Clock clock_;
  EngineState state_;
  Runs runs_;
  Sessions sessions_;
  Step step_;
  StepRecorder recorder_;
  StepPlan plan_;
};

}  // namespace imp

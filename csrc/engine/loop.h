// Everything that the engine's thread does, without the thread: a test may turn it by hand.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/lookahead.h"
#include "engine/runs.h"
#include "engine/sessions.h"
#include "engine/step_executor.h"
#include "engine/step_recorder.h"

namespace imp {

// Throws InvalidArgument where the options contradict each other, the model or the pool.
void validate(const EngineOptions& options, const ForwardPass& forward);

// Used by one thread. What passed the door is taken between turns; a turn completes at most one step. On a device that
// works behind the host's back the next step is begun before that, where the host is not needed for it: then what a
// step draws is told while the next one runs, and rows of a sequence that ended meanwhile are dropped.
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

  const KvPool& pool() const noexcept { return executor_.pool(); }
  // For tests that turn the loop by hand.
  EngineState& state() noexcept { return state_; }

 private:
  void plan_step();
  std::exception_ptr begin(Step& step);
  Step* begin_after(const Step& step);
  void end(Step& step);
  void end_failed(Step& step, const std::exception_ptr& thrown);
  void drop_ended_rows(Step& step);
  void count(const Step& step);
  std::size_t events_of(const Command& command) noexcept;
  std::size_t events_of_turn() const noexcept;
  bool reserve_for_turn() noexcept;
  void dispatch(Accepted& accepted);

  EngineOptions options_;
  Engine::Clock clock_;
  EngineState state_;
  Runs runs_;
  Sessions sessions_;
  StepExecutor executor_;
  StepRecorder recorder_;
  StepPlan plan_;
  std::array<Step, 2> steps_;
  Step* in_flight_ = nullptr;  // begun in the turn before, or null
  Lookahead lookahead_;
};

}  // namespace imp

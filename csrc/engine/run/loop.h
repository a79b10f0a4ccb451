// The engine's loop without its thread, so that tests can run it by hand.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "engine/run/engine.h"
#include "engine/run/lookahead.h"
#include "engine/run/runs.h"
#include "engine/run/sessions.h"
#include "engine/schedule/engine_state.h"
#include "engine/sparse/sparse_prefill.h"
#include "engine/speculation/speculation.h"
#include "engine/step/media_encodings.h"
#include "engine/step/step_executor.h"
#include "engine/step/step_recorder.h"

namespace imp {

// Continuous batching: each iteration takes the queued commands and completes at most one step. Overlap scheduling: on
// an asynchronous device the loop starts the next step before it reads this one, unless the host must act between them.
// Rows of a sequence that ended meanwhile are dropped.
class Loop {
 public:
  // `admission` was made with the same options and secret.
  Loop(Backend& backend, ForwardPass& forward, const EngineOptions& options, const HashSecret& secret,
       AdmissionControl& admission, Clock clock, Drafters drafters = {}, std::unique_ptr<PromptScorer> scorer = {},
       MediaEncoder* encoder = nullptr);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void take(AcceptedCommand accepted);

  // Returns true if it did something: there may be more to do. False: only a command can change anything.
  bool iterate();

  // Events since the caller last emptied the list.
  std::vector<Event>& events() noexcept { return state_.events; }
  const EngineStats& stats();

  // Call after an internal error or a device error. Every run ends with the error, and the stats report `stopped`.
  void stop(const Error& error) noexcept;

  const KvPool& pool() const noexcept { return executor_.pool(); }
  // For tests that run the loop by hand.
  EngineState& state() noexcept { return state_; }

 private:
  bool encode();
  void plan_step();
  std::exception_ptr begin(Step& step);
  Step* begin_after(const Step& step);
  void end(Step& step);
  void complete(Step& step);
  void end_failed(Step& step, const std::exception_ptr& thrown);
  void drop_ended_rows(Step& step);
  std::int64_t count(const Step& step);
  std::size_t events_of(const Command& command) noexcept;
  std::size_t events_of_iteration() const noexcept;
  bool reserve_for_iteration() noexcept;
  void dispatch(AcceptedCommand& accepted);
  void end_run(const EndCommand& end, std::int64_t taken_ns);

  EngineOptions options_;
  Clock clock_;
  EngineState state_;
  StateSaves saves_;
  Speculation speculation_;
  SparsePrefill sparse_;
  MediaEncodings media_;
  Runs runs_;
  Sessions sessions_;
  StepExecutor executor_;
  StepRecorder recorder_;
  StepPlan plan_;
  std::array<Step, 2> steps_;
  Step* in_flight_ = nullptr;  // started in the iteration before, or null
  bool is_held_back_ = false;  // the next step waits for this one because of guesses
  Lookahead lookahead_;
};

}  // namespace imp

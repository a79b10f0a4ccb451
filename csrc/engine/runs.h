// The life of a run: from its command, through the steps that evaluate it, to its one ending.
#pragma once

#include <span>

#include "engine/commands.h"
#include "engine/engine_state.h"
#include "engine/step_executor.h"

namespace imp {

class Runs {
 public:
  explicit Runs(EngineState& state) : state_(state) {}

  // Throws where the run cannot be; then the sequence is as before, and a generation is gone.
  void begin(RunCommand command, std::int64_t taken_ns);
  void set_mask(MaskCommand command);
  void pause(const PauseCommand& command);
  // True where a run ended by it.
  bool end(const EndCommand& command);

  // The sequence's run is over (and that of its siblings, while they share a prompt that is not evaluated). A
  // generation is gone afterwards.
  void finish(Sequence& sequence, FinishReason reason);
  void fail(Sequence& sequence, const Failure& failure);

  // What the scheduler and the device did.
  void scheduled(Sequence& sequence);
  void complete(std::span<const Step::Row> rows, std::span<Draw> draws, std::span<Score> scores);

 private:
  void check(const RunCommand& command, const Sequence& sequence) const;
  void check_context(const RunCommand& command, int start) const;
  void prepare(RunCommand& command, Sequence& sequence, std::int64_t taken_ns);
  void abandon(Sequence& sequence);
  void add_siblings(const RunCommand& command, Sequence& leader);

  bool keep_scores(std::span<Score> scores, Sequence& sequence);
  void evaluated(Sequence& sequence, std::span<Draw> draws);
  void start(Sequence& sequence, Draw& draw);
  void deliver(Draw& draw);
  void append_output(Sequence& sequence, Draw& draw, bool eos);
  void end_where_due(Sequence& sequence);

  // `stop` is the draw of the stop token that ended the run, where one did.
  void tell_finished(Sequence& sequence, FinishReason reason, Draw* stop);
  void close(Sequence& sequence);
  void leave_queue(Sequence& sequence);

  EngineState& state_;
};

}  // namespace imp

// The life of a run: its command, the steps that evaluate it, its end.
#pragma once

#include <span>

#include "engine/data/commands.h"
#include "engine/schedule/engine_state.h"
#include "engine/sparse/sparse_prefill.h"
#include "engine/speculation/speculation.h"
#include "engine/step/media_encodings.h"
#include "engine/step/state_saves.h"
#include "engine/step/step.h"

namespace imp {

class Runs {
 public:
  Runs(EngineState& state, StateSaves& saves, Speculation& speculation, SparsePrefill& sparse, MediaEncodings& media)
      : state_(state), saves_(saves), speculation_(speculation), sparse_(sparse), media_(media) {}

  // Throws if the run cannot begin. The sequence is then unchanged, and a generation is closed.
  void begin(RunCommand command, std::int64_t taken_ns);
  void set_mask(MaskCommand command, std::int64_t taken_ns);
  void set_guesses(DraftCommand command, std::int64_t taken_ns);
  void pause(const PauseCommand& command);
  // Returns true if it ended a run.
  bool end(const EndCommand& command);

  // Ends the run of the sequence, and of its siblings while they wait for its prompt. Closes a generation.
  void finish(Sequence& sequence, FinishReason reason);
  void fail(Sequence& sequence, const Failure& failure);
  // As fail(), for a run whose step failed.
  void fail_step(Sequence& sequence, const Failure& failure);

  // Closes a sequence that has no run.
  void erase(Sequence& sequence);

  // The scheduler and the device call these to report events.
  void on_scheduled(Sequence& sequence);
  void complete(std::span<StepRow> rows, std::span<Draw> draws, std::span<Score> scores);

 private:
  void check(const RunCommand& command, const Sequence& sequence) const;
  void prepare(RunCommand& command, Sequence& sequence, std::int64_t taken_ns);
  void add_tokens(RunCommand& command, Sequence& sequence);
  void require_new(std::span<const SequenceId> siblings);
  void reserve_memory(Sequence& sequence, std::size_t n_new_tokens);
  void abandon(Sequence& sequence);
  void add_siblings(const RunCommand& command, Sequence& leader);

  bool store_scores(std::span<Score> scores, Sequence& sequence);
  void on_evaluated(Sequence& sequence, std::span<Draw> draws);
  void verify(StepRow& row, std::span<Draw> draws);
  int verify_rows(StepRow& row, std::span<Draw> draws);
  void await_mask(Sequence& sequence);
  void hold(Sequence& sequence, int n_tokens);
  void start(Sequence& sequence, Draw& draw);
  // These return false if the run ended. A generation is closed then.
  bool deliver(Draw& draw);
  bool finish_if_done(Sequence& sequence);
  void append_output(Sequence& sequence, Draw& draw, bool eos);

  // `stop`: the draw of the stop token that ended the run, or null.
  void report_finished(Sequence& sequence, FinishReason reason, Draw* stop);
  void close(Sequence& sequence);
  void leave_queue(Sequence& sequence);

  EngineState& state_;
  StateSaves& saves_;
  Speculation& speculation_;
  SparsePrefill& sparse_;
  MediaEncodings& media_;
};

}  // namespace imp

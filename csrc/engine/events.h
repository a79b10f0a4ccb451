// What the engine tells: plain data, queued per step and drained in one call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/op_trace.h"
#include "base/error.h"
#include "engine/commands.h"

namespace imp {

// Scores of evaluated tokens, parallel lists. The first token of a sequence has none: NaN.
struct TokenScores {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<Candidate>> candidates;

  void reserve(std::size_t n_tokens) {
    tokens.reserve(n_tokens);
    logprobs.reserve(n_tokens);
    candidates.reserve(n_tokens);
  }
  // The room for them stays.
  void clear() noexcept {
    tokens.clear();
    logprobs.clear();
    candidates.clear();
  }
};

// The run's tokens are evaluated.
struct StartedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::int32_t n_tokens = 0;  // evaluated or found in the cache
  std::int32_t n_cached_tokens = 0;
  TokenScores scores;
  std::vector<Candidate> candidates;  // at the last position, and
  std::vector<float> logits;          // its row: where asked for and nothing is drawn
};

// An output was drawn.
struct TokenEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;  // 0, or the sibling's number
  std::int32_t output = 0;   // counted from the run's first output
  std::int32_t token = 0;
  std::int32_t position = 0;  // tokens held when it was drawn
  bool eos = false;
  float logprob = 0;
  std::vector<Candidate> candidates;
  std::vector<float> logits;
};

enum class FinishReason : std::uint8_t { stop, max_tokens, context_full, time_limit, aborted, cancelled };

struct RunTimings {
  std::int64_t queue_ns = 0;    // taken to first scheduled
  std::int64_t prefill_ns = 0;  // first scheduled to first output
  std::int64_t decode_ns = 0;   // first output to last
  std::int64_t blocked_ns = 0;  // paused
};

// A run ended. A stop token that ended it is named and was not told as an output.
struct FinishedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;
  FinishReason reason = FinishReason::stop;
  std::int32_t stop_token = -1;            // the request's or the model's, where one ended it
  bool eos = false;                        // it is one of the model's
  float stop_logprob = 0;                  // of the stop token, and
  std::vector<Candidate> stop_candidates;  // beside it, where asked for
  std::int32_t n_outputs = 0;
  std::int32_t position = 0;  // tokens held now
  bool pending = false;       // a sampled token waits to be evaluated
  RunTimings timings;
  std::int32_t n_preemptions = 0;
};

// A command failed; nothing of it remains. For a run that had started: it ended, the sequence is as before the step
// that failed (a generation is gone). SESSION_EXPIRED with ticket 0: an idle session was closed for want of blocks.
struct FailedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;
  Reason reason = Reason::BUG;
  std::string message;
  ErrorDetails details;
};

// Fork, truncate, close or flush is done.
struct DoneEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::int32_t position = 0;      // tokens held
  bool existed = true;            // close: the sequence was there
  std::int64_t freed_blocks = 0;  // flush
};

// When something of a step was done, by the engine's clock.
struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// A step that was recorded. Of one whose batch failed and was run row by row, forward and sample are the last row's.
struct StepSpan {
  Interval whole;
  Interval forward;
  Interval sample;  // where anything was drawn
  std::int32_t n_decode_rows = 0;
  std::int32_t n_prefill_rows = 0;
};

// A profile has ended: its steps, and the ops in them in the order in which they ran.
struct ProfileEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::vector<StepSpan> steps;
  std::vector<OpSpan> ops;
  std::int64_t n_dropped_ops = 0;  // for which there was no room
};

using Event = std::variant<StartedEvent, TokenEvent, FinishedEvent, FailedEvent, DoneEvent, ProfileEvent>;

}  // namespace imp

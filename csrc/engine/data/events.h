// Events of the engine: plain data, queued per step and drained in one call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/op_trace.h"
#include "base/error.h"
#include "engine/data/commands.h"
#include "engine/data/draft_counts.h"
#include "engine/data/limits.h"

namespace imp {

// Scores of evaluated tokens, as parallel lists. The first token of a sequence has the score NaN.
struct TokenScores {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<Candidate>> candidates;

  void reserve(std::size_t n_tokens) {
    tokens.reserve(n_tokens);
    logprobs.reserve(n_tokens);
    candidates.reserve(n_tokens);
  }
  // Keeps the capacity.
  void clear() noexcept {
    tokens.clear();
    logprobs.clear();
    candidates.clear();
  }
};

// All tokens of the run are evaluated.
struct StartedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;   // as in a TokenEvent
  std::int32_t n_tokens = 0;  // evaluated or found in the cache
  std::int32_t n_cached_tokens = 0;
  TokenScores scores;
  std::vector<Candidate> candidates;  // at the last position, and
  std::vector<float> logits;          // its logits, if requested and nothing is drawn
  std::vector<float> vector = {};     // of the text, if requested
  SparseReport sparse;
};

// An output was drawn.
struct TokenEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;  // 0, or the number of the sibling
  std::int32_t output = 0;   // counted from the run's first output
  std::int32_t token = 0;
  std::int32_t position = 0;  // tokens held when it was drawn
  bool eos = false;
  bool awaits_mask = false;  // the run waits for the mask of its next output (MaskCommand)
  float logprob = 0;
  std::vector<Candidate> candidates;
  std::vector<float> logits;
};

// A constrained run has reported the outputs of a step, and asks for guesses with the mask of its next output
// (DraftCommand). Steps that ask for none have no such event.
struct DraftedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;
  std::int32_t output = 0;  // the next one
  std::int32_t n_most = 0;  // guesses that the run can use
  std::int32_t n_tokens = 0;
  // What the engine guesses. An array, so that a step allocates nothing.
  std::array<std::int32_t, kLimits.constrained_draft_tokens> tokens = {};
};

enum class FinishReason : std::uint8_t { stop, max_tokens, context_full, time_limit, aborted, cancelled };

struct RunTimings {
  std::int64_t queue_ns = 0;    // taken to first scheduled
  std::int64_t prefill_ns = 0;  // first scheduled to first output
  std::int64_t decode_ns = 0;   // first output to last
  std::int64_t blocked_ns = 0;  // total time paused
  std::int64_t encode_ns = 0;   // of encoding its media, also in the times above. A run pays for others that wait too.
};

// A run ended. The stop token that ended it was not reported as an output.
struct FinishedEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::uint32_t stream = 0;
  FinishReason reason = FinishReason::stop;
  std::int32_t stop_token = -1;            // the request's or the model's; -1: none ended the run
  bool eos = false;                        // the stop token is an eos token of the model
  float stop_logprob = 0;                  // of the stop token, and
  std::vector<Candidate> stop_candidates;  // its alternatives, if requested
  std::int32_t n_outputs = 0;
  std::int32_t position = 0;  // tokens held now
  bool pending = false;       // a sampled token is not evaluated yet
  RunTimings timings;
  std::int32_t n_preemptions = 0;
  DraftCounts drafts;
  CountsByDrafter drafters;
  std::string_view drafts_off;  // why no guesses were verified at its end; empty: some were, or none were found
};

// A command failed and changed nothing. A run that had started ended, and its sequence is as before the failed step (a
// generation is closed). SESSION_EXPIRED with ticket 0: an idle session was closed to free its blocks.
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
  bool existed = true;            // close: whether the sequence existed
  std::int64_t freed_blocks = 0;  // flush
};

// Start and end on the engine's clock.
struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// A recorded step. If its batch failed and its rows ran one by one, forward and sample are those of the last row.
struct StepSpan {
  Interval whole;
  Interval forward;
  Interval sample;  // if anything was drawn
  std::int32_t n_decode_rows = 0;
  std::int32_t n_prefill_rows = 0;
  std::int32_t n_guess_rows = 0;
};

// A profile ended: its steps, and their ops in order.
struct ProfileEvent {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::vector<StepSpan> steps;
  std::vector<OpSpan> ops;
  std::int64_t n_dropped_ops = 0;  // ops beyond the limit
};

using Event = std::variant<StartedEvent, TokenEvent, DraftedEvent, FinishedEvent, FailedEvent, DoneEvent, ProfileEvent>;

}  // namespace imp

// Commands to the engine: plain data, taken between steps in the order of arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/data/media_span.h"
#include "engine/data/sampling_options.h"
#include "engine/data/section.h"
#include "engine/data/sparse_request.h"

namespace imp {

using SequenceId = std::uint64_t;  // chosen by the client and never reused
using Ticket = std::uint64_t;      // chosen by the client; every event names the ticket of the command it answers

enum class SequenceKind : std::uint8_t {
  generation,  // closes itself when its run ends; may be preempted and recomputed
  session,     // lives until closed; never preempted
};

struct OpenCommand {
  SequenceId sequence = 0;
  SequenceKind kind = SequenceKind::generation;
  SamplingOptions sampling;
  std::int32_t priority = 0;   // higher first
  std::string tenant;          // fairness between tenants
  std::string cache_scope;     // only requests of one scope (tenant and salt) share prefix blocks; hashed when accepted
  bool bypass_prefix = false;  // compute the whole prompt; later requests may still share it
  std::uint32_t stream = 0;    // the number within its request, which selects its random stream
};

// When a run ends. The first condition that holds at a token decides, in this order: stop token, end (from outside),
// max_outputs, context full.
struct RunLimits {
  std::int32_t max_outputs = 1;           // 0: evaluate only; -1: up to the context
  std::int32_t min_outputs = 0;           // stop tokens are ordinary outputs before this many
  bool must_fit = false;                  // refuse the run if max_outputs do not fit the context
  std::vector<std::int32_t> stop_tokens;  // the request's, ascending
  std::vector<std::int32_t> eos_tokens;   // the model's, ascending; outputs among them are flagged
  bool ends_at_eos = true;                // eos ends the run; a step of a session only flags it
};

// How the vector of a text is returned.
struct VectorRequest {
  std::int32_t dimensions = 0;  // the first ones; 0: all
  bool normalized = true;       // to length 1, after the cut
};

struct RunReturns {
  bool logprobs = false;
  std::int32_t n_candidates = 0;
  bool logits = false;           // the row of each output; the last row if nothing is drawn
  bool scores = false;           // score each evaluated token,
  std::int32_t first_score = 0;  // from this position on
  std::int32_t n_score_candidates = 0;
  std::optional<VectorRequest> vector = {};  // of the text, of a generation that draws nothing
};

// Evaluates tokens (or the pending one) and samples outputs. A session's step is a run of one output, a generation a
// run of many.
struct RunCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::vector<std::int32_t> tokens;         // empty: the pending token
  std::vector<MediaSpan> media;             // in `tokens`, which have the placeholder in their cells
  std::int32_t second_text = -1;            // tokens from this index on have type 1; -1: none has
  bool resume = false;                      // no tokens given and none pending: draw again at the last held position
  std::optional<std::int32_t> position;     // optimistic lock: the expected number of tokens held
  std::optional<SamplingOptions> sampling;  // replaces the sampler: output index 0 is the next draw
  // The number of held tokens at which output index 0 is drawn. A draw's random bits depend on its index. The run's
  // tokens from there on are outputs, for penalties and for the budget.
  std::optional<std::int32_t> base;
  bool rebase = false;  // output index 0 is the next draw; the sampler stays
  RunLimits limits;
  RunReturns returns;
  std::vector<std::uint32_t> allowed;  // for the first output: a bit per token id; empty: all
  bool constrained = false;            // no output is drawn before its MaskCommand
  SectionBudget budget;                // most outputs of a section, such as reasoning
  SparseRequest sparse;                // whether only a part of the prompt is evaluated; not of sessions
  std::int32_t max_draft_tokens = 0;   // most guesses that a step verifies; 0: no speculative decoding
  std::uint32_t drafters = ~0U;        // those that may guess: a bit for each, in the engine's order
  std::vector<std::int32_t> forced;    // for measurements: outputs in place of the first ones that are drawn
  std::vector<SequenceId> siblings;    // further sequences sampled from the same prompt: streams 1, 2, …
  std::string tenant;                  // of the sequence: whose place in the queue the run takes
};

// The mask of one output of a constrained run. Masks may come early; the run waits for a late one.
struct MaskCommand {
  Ticket ticket = 0;  // of the run, here and below, so that a late command cannot affect a later run
  SequenceId sequence = 0;
  std::int32_t output = 0;  // counted from the run's first output
  std::vector<std::uint32_t> allowed;
  bool end = false;  // only the end is allowed: the run ends with STOP before this output
};

// Answers a DraftedEvent: n guesses of the next outputs of a constrained run, perhaps none. Submit it in one list with
// the masks of the outputs `output` to `output` + n, each of which assumes the guesses before it. Until then the run
// takes no mask, so that none can assume other outputs than there are.
struct DraftCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::int32_t output = 0;           // that the first guess is for
  std::vector<std::int32_t> tokens;  // at most kLimits.constrained_draft_tokens
  bool forced = false;               // the constraint allows no other text; else they are those of the event
};

enum class EndReason : std::uint8_t { cancelled, aborted, time_limit, stop };

// Ends a run at once, in any state. Before its tokens are evaluated the run leaves no trace, and its siblings end with
// it. `stop`: the text layer found a stop string. The run may be ahead of its reader: outputs beyond n_outputs are
// removed, even if the run has already ended.
struct EndCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  EndReason reason = EndReason::cancelled;
  std::optional<std::int32_t> n_outputs;  // absent: all drawn outputs
};

// Pauses a run whose reader is slow, or resumes it. A paused run keeps its blocks.
struct PauseCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  bool paused = false;
};

struct ForkCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  SequenceId copy = 0;
  std::optional<std::int32_t> position;  // tokens to share; absent: all, with the pending token
};

struct TruncateCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::int32_t position = 0;
};

struct CloseCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
};

struct FlushCacheCommand {
  Ticket ticket = 0;
};

// Records the next n_steps steps. A ProfileEvent follows the last one. A new command ends the profile before it; 0
// steps only ends it.
struct ProfileCommand {
  Ticket ticket = 0;
  std::int32_t n_steps = 0;
};

using Command = std::variant<OpenCommand, RunCommand, MaskCommand, DraftCommand, EndCommand, PauseCommand, ForkCommand,
                             TruncateCommand, CloseCommand, FlushCacheCommand, ProfileCommand>;

}  // namespace imp

// What the engine can be asked: plain data, taken between steps in the order of arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/sampling_options.h"

namespace imp {

using SequenceId = std::uint64_t;  // chosen by the client; never used twice in an engine's life
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
  std::string cache_scope;     // prefix blocks are shared within one scope (tenant and salt); hashed at the door
  bool bypass_prefix = false;  // compute the whole prompt; what is computed is still shared
};

// When a run of outputs ends. The first that holds at a token, in this order: stop token, end (from outside),
// max_outputs, context full.
struct RunLimits {
  std::int32_t max_outputs = 1;           // 0: evaluate only; -1: up to the context
  std::int32_t min_outputs = 0;           // stop tokens are ordinary outputs before this many
  bool must_fit = false;                  // refuse the run where max_outputs do not fit the context
  std::vector<std::int32_t> stop_tokens;  // the request's, ascending
  std::vector<std::int32_t> eos_tokens;   // the model's, ascending; outputs among them are flagged
  bool ends_at_eos = true;                // they end the run; a step only flags them
};

struct RunReturns {
  bool logprobs = false;
  std::int32_t n_candidates = 0;
  bool logits = false;  // the row that each output was drawn from; the last row where none is drawn
  bool scores = false;  // of the evaluated tokens
  std::int32_t n_score_candidates = 0;
};

// Evaluates tokens (or the pending one) and samples outputs: a step is a run of one output, a generation a run of many.
struct RunCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  std::vector<std::int32_t> tokens;         // empty: the pending token
  bool resume = false;                      // empty tokens and nothing pending: draw from the last held position
  std::optional<std::int32_t> position;     // optimistic lock: tokens held
  std::optional<SamplingOptions> sampling;  // replaces the sampler: output index 0 is the next draw
  std::optional<std::int32_t> base;         // output index 0 is at this many held tokens
  bool rebase = false;                      // output index 0 is the next draw, the sampler stays
  RunLimits limits;
  RunReturns returns;
  std::vector<std::uint32_t> allowed;  // for the first output: a bit per token id; empty: all
  bool constrained = false;            // no output is drawn before the MaskCommand of its index has come
  std::vector<SequenceId> siblings;    // further sequences sampled from the same prompt, streams 1, 2, …
};

// The mask of one output of a constrained run. Masks may come early, never late: the run waits.
struct MaskCommand {
  Ticket ticket = 0;  // of the run, here and below: a word that comes late hits no later run
  SequenceId sequence = 0;
  std::int32_t output = 0;  // counted from the run's first output
  std::vector<std::uint32_t> allowed;
  bool end = false;  // nothing but the end is possible: the run ends with STOP before this output
};

enum class EndReason : std::uint8_t { cancelled, aborted, time_limit, stop };

// Ends a run where it stands, wherever it is; before its tokens are evaluated it leaves no trace, and siblings end
// together. `stop`: the text layer found the end. A run may be ahead of its reader: n_outputs are those that count, and
// what was drawn beyond them never existed, even where the run had ended by then.
struct EndCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  EndReason reason = EndReason::cancelled;
  std::optional<std::int32_t> n_outputs;  // absent: all that were drawn
};

// Holds a run (its reader is slow) or lets it go on; it keeps its blocks.
struct PauseCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  bool paused = false;
};

struct ForkCommand {
  Ticket ticket = 0;
  SequenceId sequence = 0;
  SequenceId copy = 0;
  std::optional<std::int32_t> position;  // tokens shared; absent: all, and the pending token
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

// Records the steps to come: a ProfileEvent follows the last of them. One profile at a time: a further command ends the
// one before, 0 steps does nothing else.
struct ProfileCommand {
  Ticket ticket = 0;
  std::int32_t n_steps = 0;
};

using Command = std::variant<OpenCommand, RunCommand, MaskCommand, EndCommand, PauseCommand, ForkCommand,
                             TruncateCommand, CloseCommand, FlushCacheCommand, ProfileCommand>;

}  // namespace imp

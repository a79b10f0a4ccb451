// A sequence: its tokens, its blocks and its current run.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/commands.h"
#include "engine/data/events.h"
#include "engine/data/limits.h"
#include "engine/data/token_mask.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/kv_blocks.h"
#include "engine/sequence/draft_history.h"
#include "engine/sequence/media_spans.h"
#include "engine/sequence/ngram_index.h"
#include "engine/sequence/section_progress.h"
#include "engine/sequence/sparse_prompt.h"

namespace imp {

struct Sequence;
struct Tenant;

// The mask of one output of a constrained run.
struct OutputMask {
  std::int32_t output = 0;
  bool end = false;  // the run ends before this output
  TokenMask allowed;
};

// The guesses of a DraftCommand.
struct GivenGuesses {
  std::int32_t output = 0;  // that the first one is for; -1: the answer is not there yet
  std::vector<std::int32_t> tokens;
  bool forced = false;
  std::int64_t taken_ns = -1;  // when the answer came
};

// What a DraftedEvent proposed. If there was none, nothing was asked for and the answer is a mask.
struct Proposal {
  std::int64_t made_ns = -1;  // when the run began to wait; -1: the answer is counted
  int n_asked = 0;            // guesses for which it asks
  int drafter = -1;           // -1: it proposed nothing
  std::array<std::uint8_t, kLimits.constrained_draft_tokens> confidence{};
};

// The sequence before its run, to restore it if the run leaves no trace.
struct BeforeRun {
  int held = 0;
  std::optional<std::int32_t> pending;
  int base = 0;
  std::optional<SamplingOptions> sampler;  // if the run replaced it
};

// The RunCommand in progress. Its tokens follow the sequence's; each output is appended when it is drawn.
struct Run {
  Ticket ticket = 0;
  RunLimits limits;
  RunReturns returns;
  TokenMask allowed;  // for the first output; empty: all
  bool constrained = false;
  std::int32_t max_draft_tokens = 0;
  std::uint32_t drafters = ~0U;  // as in the RunCommand
  std::vector<std::int32_t> forced;
  std::int32_t second_text = -1;  // as in the RunCommand
  bool is_whole = false;          // all of its tokens are evaluated in one step
  SectionProgress section;        // after its outputs
  SparseRequest sparse_request;
  SparseReport sparse_report;
  bool awaits_scoring = false;  // it is not admitted before its prompt is scored
  bool awaits_media = false;    // it is not admitted before the first media that it evaluates are encoded
  int n_cached_before = -1;     // cells that the prefix cache held when the run began to wait for media; -1: unknown
  std::int64_t encode_ns = 0;   // of the pieces of media that were encoded for it
  std::vector<OutputMask> masks;
  // Its steps may end with a DraftedEvent; the answer is the next masks and guesses. Each mask assumes that the guesses
  // before it are the outputs, so both are of one step.
  bool may_ask = false;
  GivenGuesses given;
  Proposal proposal;
  BeforeRun before;

  int start = 0;         // tokens held at the first draw; of a sparse prompt those that are evaluated
  bool started = false;  // its tokens are evaluated and a draw succeeded
  int n_outputs = 0;
  int n_cached = 0;
  std::string queue_tenant;          // whose places in the queue the run holds:
  int n_queued = 0;                  // sequences and
  std::int64_t n_queued_tokens = 0;  // tokens counted by admission control until the run is scheduled
  TokenScores scores;

  // The sequences that wait for this run's prompt. In each of them, `leader` evaluates it.
  std::vector<Sequence*> siblings;
  Sequence* leader = nullptr;

  std::int64_t taken_ns = 0;
  std::int64_t scored_ns = -1;  // when the scoring of its prompt began; -1: it is not scored
  std::int64_t scheduled_ns = -1;
  std::int64_t first_output_ns = -1;
  std::int64_t last_output_ns = -1;
  std::int64_t paused_ns = -1;  // start of the current pause; -1: not paused
  std::int64_t blocked_ns = 0;  // total time of earlier pauses
  int n_preemptions = 0;
  DraftCounts drafts;
  std::array<DraftCounts, kMaxDrafters> drafts_by_drafter{};
  SkipCounts draft_skips{};

  bool paused() const noexcept { return paused_ns >= 0; }
  bool may_use(std::size_t drafter) const noexcept { return (drafters >> drafter & 1U) != 0; }
  const OutputMask* mask(std::int32_t output) const noexcept;
  // The number of given guesses that a step may evaluate. Each needs a mask that allows it, and a mask for the output
  // after it.
  int n_given() const noexcept;
  // Forgets the masks that assume another token than this one as the next output, and then counts it.
  void count_output(std::int32_t token);
  // Whether the mask of the next output has arrived, or none is needed.
  bool may_draw() const noexcept;
};

// The scheduler's state of a run.
enum class RunPhase : std::uint8_t { none, waiting, running };

// The scheduler's data of a sequence.
struct Scheduling {
  RunPhase phase = RunPhase::none;
  Tenant* tenant = nullptr;  // while it has a run
  bool preempted = false;    // lost its blocks and waits at the head of the queue
  bool is_chosen = false;    // may decode in the step being planned
  std::uint64_t order = 0;   // order of arrival
  std::uint64_t turn = 0;    // grows with each row; the sequence of a tenant with the lowest goes next
  std::int64_t queued_ns = 0;
  std::int64_t idle_since_ns = 0;  // a session's last use
};

// tokens[0, held) are in the KV cache; the rest is to be evaluated. Without a run the rest is the pending token or
// nothing.
struct Sequence {
  SequenceId id = 0;
  SequenceKind kind = SequenceKind::generation;
  std::int32_t priority = 0;
  std::string tenant;
  CacheScope scope;
  bool bypass_prefix = false;
  std::uint32_t stream = 0;  // number within its request; selects its random stream

  SamplingOptions sampler;
  SamplerParams params;  // views into sampler; set_sampler updates both

  std::vector<std::int32_t> tokens;
  MediaSpans media;                    // tokens has their numbers in their cells
  std::optional<SparsePrompt> sparse;  // tokens lacks a part of the prompt; such a sequence has no media
  int n_guesses = 0;                   // while a step evaluates them: the last tokens are guesses, not outputs
  int held = 0;
  int base = -1;  // tokens held when output index 0 was drawn; -1: nothing was drawn yet
  BlockTable table;
  NgramIndex ngrams;
  DraftHistory drafting;

  std::optional<Run> run;
  Scheduling scheduling;

  // The last run, for a reader that cuts its outputs after its end. Its outputs began at last_start.
  Ticket last_ticket = 0;
  int last_start = -1;

  Sequence() = default;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // The whole prompt, then the outputs and guesses.
  std::span<const std::int32_t> history() const noexcept { return sparse ? sparse->history : tokens; }
  // The place in `history` of the n-th element of `tokens`: what limits, draws and reports count.
  int place_of(int n) const noexcept { return sparse ? sparse->position_of(n) : n; }
  // By which the row of that element rotates, in a plane of positions.
  int position_of(int n, int plane) const noexcept {
    return sparse ? sparse->position_of(n) : media.position_of(n, plane);
  }
  // Whether nothing but text follows from this cell on.
  bool is_text_from(int cell) const noexcept { return cell >= media.last_end(); }
  // Ids alone, but for a token that only the device knows.
  std::span<const std::int32_t> text_after_media() const noexcept {
    return history().subspan(static_cast<std::size_t>(media.last_end()));
  }
  // The first tokens whose rows are those of any sequence that begins with them.
  int n_shareable() const noexcept { return sparse ? sparse->n_dense : static_cast<int>(tokens.size()); }
  // Keeps these tokens of the prompt after the first n_dense; `kept` ascends. Throws bad_alloc and changes nothing.
  void make_sparse(int n_dense, std::vector<std::int32_t> kept);
  // Keeps the whole prompt again. Nothing of it is held. Allocates nothing.
  void make_dense() noexcept;

  int n_left() const noexcept { return static_cast<int>(tokens.size()) - held; }
  // Tokens that a step may evaluate now: those before the first medium that is not encoded yet.
  int n_evaluable() const noexcept;
  // Has exactly one token to evaluate and may draw the next one.
  bool is_runnable() const noexcept { return n_left() == 1 && !run->paused() && run->may_draw() && n_evaluable() == 1; }
  std::optional<std::int32_t> pending() const noexcept;
  void set_sampler(const SamplingOptions& options);

  void append(std::int32_t token);
  // Keeps the first n_tokens, with all of a sparse prompt.
  void cut_tokens(int n_tokens);
  // So that the index of the tokens does not allocate.
  void reserve_ngrams() { ngrams.reserve(history(), tokens.capacity()); }
  void append_guess(std::int32_t token);
  // Allocates nothing; a second call does nothing.
  void drop_guesses();

  // Drops the outputs after the first n_kept of a run that began at `start`. The last kept output is pending.
  void keep_outputs(int start, int n_kept);
  // Reverts a run that has not started. Allocates nothing; a second call does nothing.
  void restore();

  // Detaches the siblings of its run from their leader and returns them.
  std::vector<Sequence*> detach_siblings();
};

}  // namespace imp

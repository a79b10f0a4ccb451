// A sequence: the tokens it holds, the blocks they are in, and the run that is under way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/block_hash.h"
#include "engine/commands.h"
#include "engine/events.h"
#include "engine/kv_blocks.h"
#include "engine/token_mask.h"

namespace imp {

struct Sequence;
struct Tenant;

// The mask of one output of a constrained run.
struct OutputMask {
  std::int32_t output = 0;
  bool end = false;  // the sequence ends before this output
  TokenMask allowed;
};

// How a sequence was before its run, for a run that leaves no trace.
struct BeforeRun {
  int held = 0;
  std::optional<std::int32_t> pending;
  int base = 0;
  std::optional<SamplingOptions> sampler;  // where the run replaced it
};

// One RunCommand under way. Its tokens are at the end of the sequence's; so is each output as soon as it is drawn.
struct Run {
  Ticket ticket = 0;
  RunLimits limits;
  RunReturns returns;
  TokenMask allowed;  // for the first output; empty: all
  bool constrained = false;
  std::vector<OutputMask> masks;
  BeforeRun before;

  int start = 0;         // tokens held at the first draw
  bool started = false;  // the given tokens are evaluated, and what was drawn since is kept
  int n_outputs = 0;
  int n_cached = 0;
  int n_queued = 0;                  // sequences, and
  std::int64_t n_queued_tokens = 0;  // tokens counted at the door until the run is scheduled
  TokenScores scores;

  // Sequences that wait for this run's prompt, and in each of those the one that evaluates it.
  std::vector<Sequence*> siblings;
  Sequence* leader = nullptr;

  std::int64_t taken_ns = 0;
  std::int64_t scheduled_ns = -1;
  std::int64_t first_output_ns = -1;
  std::int64_t last_output_ns = -1;
  std::int64_t paused_ns = -1;  // since when it is paused
  std::int64_t blocked_ns = 0;  // paused in all, until then
  int n_preemptions = 0;

  bool paused() const noexcept { return paused_ns >= 0; }
  const OutputMask* mask(std::int32_t output) const noexcept;
  // The mask of the next output is here, or none is needed.
  bool may_draw() const noexcept;
};

// Where a run stands in the scheduler.
enum class RunPhase : std::uint8_t { none, waiting, running };

// What the scheduler keeps of a sequence.
struct Scheduling {
  RunPhase phase = RunPhase::none;
  Tenant* tenant = nullptr;  // while it has a run
  bool preempted = false;    // its blocks were taken; it waits at the head of the queue
  bool is_chosen = false;    // it may decode in the step that is being planned
  std::uint64_t order = 0;   // of arrival
  std::uint64_t turn = 0;  // grows with each row that it gets; of a tenant's sequences the one with the least goes next
  std::int64_t queued_ns = 0;
  std::int64_t rested_ns = 0;  // a session's last use
};

// tokens[0, held) are in the cache; what follows is to be evaluated. Without a run that is the pending token or
// nothing.
struct Sequence {
  SequenceId id = 0;
  SequenceKind kind = SequenceKind::generation;
  std::int32_t priority = 0;
  std::string tenant;
  CacheScope scope;
  bool bypass_prefix = false;
  std::uint32_t stream = 0;  // its number within its request: names its random stream

  SamplingOptions sampler;
  SamplerParams params;  // views into sampler; set_sampler keeps them in step

  std::vector<std::int32_t> tokens;
  int held = 0;
  int base = -1;  // tokens held at output index 0; -1: no draw was asked for yet
  BlockTable table;

  std::optional<Run> run;
  Scheduling scheduling;

  // The last run, for a reader that finds its end late: outputs began at last_start.
  Ticket last_ticket = 0;
  int last_start = -1;

  Sequence() = default;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  int n_left() const noexcept { return static_cast<int>(tokens.size()) - held; }
  // Has one token left to evaluate and may draw the next one.
  bool is_runnable() const noexcept { return n_left() == 1 && !run->paused() && run->may_draw(); }
  std::optional<std::int32_t> pending() const noexcept;
  void set_sampler(const SamplingOptions& options);

  // Drops the outputs of a run that began at `start` beyond the first n_kept: the last kept one is pending.
  void keep_outputs(int start, int n_kept);
  // Undoes a run that has not started, once; needs no memory.
  void restore();

  // The siblings of its run, each on its own from now on: none looks for a leader that may be gone before it.
  std::vector<Sequence*> part_siblings();
};

}  // namespace imp

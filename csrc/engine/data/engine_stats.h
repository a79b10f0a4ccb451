// The counts and times that the engine reports about itself.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/step_graph_counts.h"
#include "engine/data/draft_counts.h"
#include "engine/data/duration_histogram.h"

namespace imp {

// A snapshot, published after each iteration. silence_ns is computed when it is read.
struct EngineStats {
  std::uint64_t n_steps = 0;
  std::uint64_t n_steps_ahead = 0;  // steps that began before the results of the step before were read
  std::uint64_t n_decode_rows = 0;
  std::uint64_t n_prefill_rows = 0;
  std::uint64_t n_cached_tokens = 0;
  std::uint64_t n_outputs = 0;
  std::uint64_t n_preemptions = 0;
  DraftCounts drafts;
  CountsByDrafter drafters;
  SkipCounts draft_skips{};     // by DraftSkip
  std::int64_t draft_ns = 0;    // total time of choosing and making guesses
  std::uint64_t n_wakeups = 0;  // times the eventfd was signalled
  int running = 0;
  int waiting = 0;
  int queued = 0;  // sequences accepted and not yet scheduled, as of now, not of the last step
  int sessions = 0;
  int blocks_live = 0;
  int blocks_cached = 0;
  int blocks_free = 0;
  int states_held = 0;  // slots of recurrent state that sequences hold,
  int states_kept = 0;  // those kept as snapshots,
  int states_free = 0;  // and the others; all 0 if the model has none
  std::int64_t waiting_tokens = 0;
  std::int64_t last_step_ns = 0;  // the clock at the end of the last step
  std::uint64_t n_encoded = 0;    // parts of media
  std::uint64_t n_found = 0;      // parts whose encoding was there when a run that needs it came
  std::uint64_t media_bytes = 0;  // of the encodings that are kept
  std::int64_t encode_ns = 0;     // total
  std::int64_t forward_ns = 0;    // total in forward passes
  std::int64_t sample_ns = 0;     // total in the backend's sampler
  std::int64_t step_ns = 0;       // total in steps
  // Time since the thread began its current work: a command or a step. 0 if it is idle, or if it waits for a reader to
  // drain the events.
  std::int64_t silence_ns = 0;
  std::optional<StepGraphCounts> graphs;  // since the backend was made; empty if the backend captures no graphs
  DurationHistogram steps;
  DurationHistogram cancels;  // time from the cancel command until the blocks are free
  bool stopped = false;       // after a device error or an internal error; nothing runs any more
};

}  // namespace imp

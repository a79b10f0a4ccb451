// The engine's options, and the one table of those in imp.conf. The engine checks values by it. imp.conf takes ranges,
// defaults and descriptions from it through `_core.engine_fields()`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/data/hash_secret.h"
#include "engine/data/limits.h"
#include "engine/data/sparse_request.h"

namespace imp {

struct EngineOptions {
  int n_blocks = 0;       // KV blocks
  int n_state_slots = 0;  // slots of recurrent state; 0: the model has none
  int max_context = 0;    // no position at or beyond it is evaluated
  int max_running = 64;   // sequences in one step
  int max_waiting = 256;  // runs not yet admitted
  std::int64_t max_waiting_tokens = 1 << 20;
  int max_sessions = 256;
  int prefill_chunk = 512;           // tokens of one sequence evaluated in one step
  int step_tokens = 512;             // rows of one step, decode rows included; at least max_running
  int prefill_per_decode = 6;        // rows of prompts for each decode row of the same step; 0: as many as fit
  int decode_per_tenant = 12;        // decode rows per tenant in a step that several tenants share; 0: no bound
  std::int64_t max_wait_ms = 60000;  // a run that waited this long goes before higher priorities
  double tenant_share = 0.5;         // largest share of running, waiting, cache and idle sessions while others wait
  bool evict_sessions = false;       // close the longest idle session if blocks are lacking
  bool prefix_cache = true;
  int state_snapshot_tokens = 512;                          // a snapshot of the recurrent state every so many positions
  int max_cached_blocks = std::numeric_limits<int>::max();  // cached blocks without a holder
  int max_candidates = kLimits.top_logprobs;                // the most that a run may ask for
  std::optional<HashSecret> cache_secret;                   // secret of the prefix keys; absent: drawn from the system
  int max_queued_events = 65536;                            // the loop pauses if nobody drains them
  int n_tokens = 0;                             // valid token ids are below it; 0: every row of the model is a token
  std::vector<std::int32_t> suppressed_tokens;  // never drawn
  std::vector<std::string> drafters;            // what guesses for speculative decoding, in the order of their use
  bool fixed_depth = false;                     // use every guess that fits; only for tests and measurements
  // The share of right guesses of a draft model or head where outputs are forced; absent: its own. For measurements.
  std::optional<double> draft_right_share;
  std::vector<std::int32_t> draft_suppressed_tokens;  // ids that the draft model does not share: never guessed
  bool sparse_prefill = false;                        // requests may have a part of their prompt evaluated
  int sparse_threshold = SparseLimits{}.threshold;
  int sparse_max_tokens = SparseLimits{}.max_tokens;
  int sparse_anchors = 1;
  int media_rows = 0;            // of encodings of media that are kept; 0: the engine was made without an encoder
  bool draft_with_media = true;  // sequences with media may draft, as others
  std::int64_t media_numbers = std::int64_t{1} << 30;  // stand for parts of media in tokens; fewer only in tests
  std::vector<std::int32_t> control_tokens;            // the parts of a prompt with one of them are always evaluated
  std::optional<int> cpu;                              // CPU of the engine's thread: that of the backend's thread 0
};

struct EngineField {
  std::string_view name;
  std::variant<int EngineOptions::*, std::int64_t EngineOptions::*, double EngineOptions::*, bool EngineOptions::*>
      member;
  std::string_view key;  // in imp.conf
  double low = 0;
  double high = 0;
  std::string_view meaning;
};

inline constexpr EngineField kEngineFields[] = {
    {"max_running", &EngineOptions::max_running, "scheduler.max_running", 1, 4096, "most sequences in one step"},
    {"max_waiting", &EngineOptions::max_waiting, "scheduler.max_waiting", 1, 65536,
     "most sequences that wait for their first step; beyond it requests get QUEUE_FULL"},
    {"max_waiting_tokens", &EngineOptions::max_waiting_tokens, "scheduler.max_waiting_tokens", 1, 1 << 30,
     "most prompt tokens that wait; further requests get QUEUE_FULL"},
    {"prefill_chunk", &EngineOptions::prefill_chunk, "scheduler.prefill_chunk", 1, 65536,
     "most tokens of one prompt in one step"},
    {"step_tokens", &EngineOptions::step_tokens, "scheduler.step_tokens", 1, 65536,
     "most tokens in one step, decode and prefill together"},
    {"prefill_per_decode", &EngineOptions::prefill_per_decode, "scheduler.prefill_per_decode", 0, 65536,
     "most prompt tokens in a step for each sequence that generates in it, but 24 at least; "
     "0: no limit"},
    {"decode_per_tenant", &EngineOptions::decode_per_tenant, "scheduler.decode_per_tenant", 0, 4096,
     "sequences of each tenant in a step that tenants share; 0: no limit, and no steps for one tenant"},
    {"max_wait_ms", &EngineOptions::max_wait_ms, "scheduler.max_wait", 1, 24 * 3600 * 1000,
     "a request that waited this long is served before any priority"},
    {"tenant_share", &EngineOptions::tenant_share, "scheduler.tenant_share", 0.01, 1,
     "largest share of running, waiting, cache and idle sessions for one tenant while others wait"},
    {"prefix_cache", &EngineOptions::prefix_cache, "kv.prefix_cache", 0, 1,
     "keep the blocks of ended requests for prompts with the same beginning"},
    {"state_snapshot_tokens", &EngineOptions::state_snapshot_tokens, "kv.state_snapshot_tokens", 1, 1 << 20,
     "keep a snapshot of the recurrent state every so many tokens, rounded up to whole blocks"},
    {"max_sessions", &EngineOptions::max_sessions, "sessions.max", 0, 65536,
     "most open sessions; further ones get SESSIONS_FULL"},
    {"evict_sessions", &EngineOptions::evict_sessions, "sessions.evict", 0, 1,
     "end the longest idle session whose blocks become free, instead of KV_FULL"},
    {"sparse_prefill", &EngineOptions::sparse_prefill, "sparse_prefill.enabled", 0, 1,
     "requests may ask for it: approximate, and replies say so"},
    {"sparse_threshold", &EngineOptions::sparse_threshold, "sparse_prefill.threshold", 1, 1 << 24,
     "auto evaluates the whole prompt if at most this many tokens are uncached"},
    {"sparse_max_tokens", &EngineOptions::sparse_max_tokens, "sparse_prefill.max_tokens", 1, 1 << 24,
     "prompts with more uncached tokens than this are evaluated as a whole"},
    {"sparse_anchors", &EngineOptions::sparse_anchors, "sparse_prefill.anchors", 1, 64,
     "chunks of 32 tokens at either end that are always evaluated"},
    {"draft_with_media", &EngineOptions::draft_with_media, "speculation.with_media", 0, 1,
     "sequences with images draft as others do"},
};

}  // namespace imp

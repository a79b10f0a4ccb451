// Divides the available memory among weights, cache and scratch before any is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imp {

// Of a draft model. Its blocks have as many tokens as the model's.
struct DraftMemory {
  std::uint64_t weights_bytes = 0;
  std::uint64_t kv_block_bytes = 1;
  std::optional<std::uint64_t> kv_bytes;  // empty: a quarter of the model's cache, and no more blocks than it has
};

struct MemoryRequest {
  std::uint64_t budget_bytes = 0;  // for all of it
  std::uint64_t weights_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // activations and scratch of the ops
  std::uint64_t logits_bytes = 0;
  std::uint64_t reserve_bytes = 0;   // left for the rest of the process
  std::uint64_t kv_block_bytes = 1;  // over all layers
  int kv_block_tokens = 16;
  std::optional<std::uint64_t> kv_bytes;  // empty: plan_memory() chooses
  // Of a draft head: its weights and activations, and its cache under the same block numbers. 0: there is none.
  std::uint64_t head_bytes = 0;
  std::uint64_t head_block_bytes = 0;
  // Of a vision tower: its weights and activations, and the encodings of images that are kept. 0: there is none.
  std::uint64_t projector_bytes = 0;
  std::uint64_t media_bytes = 0;
  // Of models with a recurrent state; 0 bytes: the model has none.
  std::uint64_t state_slot_bytes = 0;
  int max_running = 1;                                // sequences that hold a state at once
  std::optional<std::uint64_t> state_snapshot_bytes;  // empty: plan_memory() chooses
  int model_context = 1;                              // tokens per sequence by default
  std::optional<int> max_context;                     // requested: the cache must hold it
  bool is_for_models = false;             // as on a GPU: nothing else uses the memory, so the cache takes the rest
  std::optional<DraftMemory> draft = {};  // its scratch and logits are among those above
};

struct MemoryItem {
  // "weights", "kv", "draft weights" and "draft kv" with a draft model, "head", "projector" and "media", and "state" if
  // the model has one, "scratch", "logits", "reserve"
  std::string name;
  std::uint64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;
  std::uint64_t budget_bytes = 0;
  int n_blocks = 0;
  int n_state_slots = 0;
  int n_draft_blocks = 0;
  int max_context = 0;  // at most n_blocks · block_tokens, so that one sequence alone always fits
};

// "1.5 GiB", in tenths of the unit, rounded up, so that a size that does not fit never looks as if it fits.
std::string bytes_text(std::uint64_t bytes);

// The items and their sum as one line: "weights 1.2 GiB, kv ...; in all 2.0 GiB of 1.5 GiB".
std::string memory_text(const std::vector<MemoryItem>& items, std::uint64_t budget_bytes);

// A pure function. By default the cache takes half of the memory that weights and scratch leave, or more if a requested
// context needs it. It never takes memory of logits or the reserve, nor more than 4 sequences of full length need. If
// the memory is only for models, the cache takes the rest.
//
// Slots of recurrent state: two for each running sequence, because a step reads one and writes another, and those of
// the snapshots, by default as many again. All together take at most a quarter of the memory that the other items leave
// to cache and states, nothing that a requested context or cache needs, but at least two slots.
//
// Throws ResourceExhausted(NO_MEMORY) with the items if they
// do not fit, and InvalidArgument if a requested context does not fit a requested cache.
MemoryPlan plan_memory(const MemoryRequest& request);

}  // namespace imp

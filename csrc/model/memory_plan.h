// Divides the memory there is between weights, cache and scratch, before any of it is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imp {

struct MemoryRequest {
  std::uint64_t budget_bytes = 0;  // for all of it
  std::uint64_t weights_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // activations and the ops' own
  std::uint64_t logits_bytes = 0;
  std::uint64_t reserve_bytes = 0;   // left to the rest of the process
  std::uint64_t kv_block_bytes = 1;  // of one block over all layers
  int kv_block_tokens = 16;
  std::optional<std::uint64_t> kv_bytes;  // empty: as much as is reasonable
  int model_context = 1;                  // tokens a sequence may hold where nobody says otherwise
  std::optional<int> max_context;         // somebody says so: the cache must hold it
  bool is_for_models = false;             // nothing else wants the memory: the cache takes what is left
};

struct MemoryItem {
  std::string name;  // "weights", "kv", "scratch", "logits", "reserve"
  std::uint64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;
  std::uint64_t budget_bytes = 0;
  int n_blocks = 0;
  int max_context = 0;  // at most n_blocks · block_tokens, so that one sequence alone always fits
};

// The items and their sum as one line: "weights 1.2 GiB, kv ...; in all 2.0 GiB of 1.5 GiB".
std::string memory_text(const std::vector<MemoryItem>& items, std::uint64_t budget_bytes);

// Pure. An unstated size of the cache is half of what weights and scratch leave, more where a stated context needs it,
// within what logits and reserve leave, and at most enough for 4 sequences of full length; memory that is for models
// alone it takes whole. Throws
// ResourceExhausted(NO_MEMORY) with the items where they do not fit, InvalidArgument where a stated context does not
// fit into a stated cache.
MemoryPlan plan_memory(const MemoryRequest& request);

}  // namespace imp

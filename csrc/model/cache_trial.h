// What other types of the KV cache change in a model's predictions of a text.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/kv_types.h"
#include "model/forward_pass.h"

namespace imp {

// How the next-token distributions over the last tokens of a text differ from those that an f32 cache gives.
struct CacheTrial {
  double divergence = 0;  // mean Kullback-Leibler divergence from the f32 distributions, in nats
  double same_top = 0;    // share of positions where the most likely token is the same
  double nats = 0;        // mean surprise at the text's next token
  double f32_nats = 0;
};

// Runs the text twice, with a cache of its own each time, and compares the predictions at its last n_judged positions,
// of which the very last predicts nothing and is left out. `types` are by layer of the cache. Throws
// ResourceExhausted(NO_MEMORY).
CacheTrial try_cache_types(ForwardPass& model, Backend& backend, std::span<const std::int32_t> tokens, int n_judged,
                           std::span<const KvTypes> types);

}  // namespace imp

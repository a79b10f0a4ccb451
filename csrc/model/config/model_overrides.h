// The user's changes to a model: optional fields, resolved once at load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/gemm_registry.h"
#include "backend/kv_types.h"
#include "model/config/model_config.h"

namespace imp {

// Each field replaces one fact of the file's scaling. A kind also replaces the factors stored in the file.
struct RopeScalingOverride {
  std::optional<RopeScalingKind> kind;
  std::optional<double> factor;
  std::optional<int> original_context;
  std::optional<double> attention_factor;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;
  std::optional<double> low_freq_factor;
  std::optional<double> high_freq_factor;

  bool operator==(const RopeScalingOverride&) const = default;
};

struct KvLayerOverride {
  std::string range;  // of layers of the cache: "0-1", "3", or "-2--1" from the end
  KvTypes types;
};

struct ModelOverrides {
  std::optional<int> max_context;
  std::optional<int> context_limit;  // shortens the context, and never lengthens it
  bool untrained_context = false;    // allows a max_context for which the model was not trained
  std::optional<Pooling> pooling;
  std::optional<KvTypes> kv_types;
  std::vector<KvLayerOverride> kv_layers;
  std::optional<double> rope_theta;  // of the layers without a window
  RopeScalingOverride rope_scaling;  // the same
  std::vector<GemmOverride> gemm;
  bool deterministic = false;  // a row's bits do not depend on the batch, even where that costs speed
  bool unvalidated_kernels =
      false;  // allows kernels that have not run on their hardware without an override that names them
  std::optional<std::vector<std::int32_t>> eos_token_ids;    // replace the file's
  std::optional<std::vector<std::int32_t>> suppress_tokens;  // in addition to ids without a token
};

}  // namespace imp

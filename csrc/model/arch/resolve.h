// Resolves a checkpoint's keys and the user's overrides to a valid configuration.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "files/model_file.h"
#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/config/model_config.h"
#include "model/config/model_overrides.h"
#include "model/config/origins.h"

namespace imp {

struct ResolvedModel {
  const Architecture* architecture = nullptr;
  const TensorNames* names = nullptr;
  ModelConfig config;
  std::vector<Fact> facts;
  std::string omitted_sizes;           // of config.json, with their defaults, for an error about a tensor's shape
  std::set<std::string> read_tensors;  // small tensors whose values are part of the configuration
  OwnHead own_head;                    // in the same file
  std::vector<std::string> warnings;   // sentences about unknown or unusual facts
};

// Whether most weights of a file have such types.
bool is_mostly(const ModelFile& file, bool (*is_meant)(DType));

// Attention is fastest on a bfloat16 cache, and its rounding is negligible compared with that of quantized weights.
void choose_cache_type(FactReader& facts);

// The warning about a key that nothing has read.
std::string not_understood(const std::string& key);

// file facts → the architecture's defaults → the user's overrides → validate(). Needs no device and no weights.
ResolvedModel resolve_model(const ModelFile& file, const ModelOverrides& overrides);

}  // namespace imp

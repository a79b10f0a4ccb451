// Types of the KV cache by layer: reads the ranges of an override, and writes types as text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "model/config/model_overrides.h"

namespace imp {

// The ranges from the widest to the narrowest, so that narrower ones count. Throws ModelError(OVERRIDE_INVALID).
std::vector<KvRange> read_kv_layers(std::span<const KvLayerOverride> overrides, int n_kv_layers);

// "0-1 q8_0, 2-29 rot4"
std::string kv_layers_text(std::span<const KvTypes> by_layer);

}  // namespace imp

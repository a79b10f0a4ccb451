// Collects the attention that a row pays to keys, while a model runs.
#pragma once

#include <span>

namespace imp {

// The attention that one row pays to keys [first_key, first_key + mass.size()): the greatest over heads and layers, see
// Backend::attention_mass. Layers that do not see all of these keys are left out.
struct AttentionWatch {
  int first_key = 0;
  std::span<float> mass;
  int n_layers = 0;  // that were added
};

}  // namespace imp

// Rejects invalid configurations.
#pragma once

#include <string_view>

#include "base/error.h"
#include "model/config/model_config.h"
#include "model/config/origins.h"

namespace imp {

// Throws ModelError with the field's key or override, what was found and what was expected: MODEL_LIMIT or
// `wrong_value` for facts of the checkpoint, OVERRIDE_INVALID for the user's. `where` begins each message.
void validate(const ModelConfig& config, const Origins& origins, std::string_view where, Reason wrong_value);

// The same for layers without a vocabulary around them, which may have no RoPE.
void validate_layers(const ModelConfig& config, const Origins& origins, std::string_view where, Reason wrong_value);

}  // namespace imp

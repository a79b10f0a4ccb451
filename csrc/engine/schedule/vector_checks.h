// The rules of a run that returns the vector of its text.
#pragma once

#include "engine/data/commands.h"
#include "model/forward_pass.h"

namespace imp {

// Throws FieldInvalid. vocab_size 0: the model makes no logits, so vectors are all that it returns.
void check_vector(const RunCommand& command, const PoolingFacts& facts, int vocab_size);

}  // namespace imp

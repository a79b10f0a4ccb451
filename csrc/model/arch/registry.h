// The supported architectures.
#pragma once

#include <span>
#include <string>

#include "model/arch/architecture.h"

namespace imp {

std::span<const Architecture> all_architectures();

// The architecture of a checkpoint. Throws ModelError: MODEL_KEY if it names none, MODEL_UNSUPPORTED with the list of
// known ones if it names another.
const Architecture& architecture_of(const ModelFile& file);

}  // namespace imp

// The architectures imp knows.
#pragma once

#include <span>
#include <string>

#include "model/arch/architecture.h"

namespace imp {

std::span<const Architecture> all_architectures() noexcept;

// The architecture of a checkpoint. Throws ModelError: MODEL_KEY where it names none, MODEL_UNSUPPORTED, listing the
// known, where it names another.
const Architecture& architecture_of(const ModelFile& file);

}  // namespace imp

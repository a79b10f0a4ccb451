// Recognizes checkpoints that imp does not run, and gives advice to their users.
#pragma once

#include "files/model_file.h"

namespace imp {

// Throws ModelError(MODEL_UNSUPPORTED) with advice for an adapter, a projector, an embedding model, a classifier, and
// for a family that imp knows by name and does not compute.
void refuse_other_kinds(const ModelFile& file);

}  // namespace imp

// Recognizes checkpoints that imp does not run, and gives advice to their users.
#pragma once

#include "files/model_file.h"
#include "model/arch/architecture.h"

namespace imp {

// Throws ModelError(MODEL_UNSUPPORTED) with advice for an adapter, a projector, and a family that imp knows by name and
// does not compute.
void refuse_other_kinds(const ModelFile& file);

// The same for a checkpoint whose classes make something else than this architecture does in imp: text, or vectors of
// texts and scores of a reranker.
void refuse_other_tasks(const ModelFile& file, const Architecture& architecture);

}  // namespace imp

// The scratch that ops need for planned weights.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "base/error.h"
#include "files/model_file.h"
#include "model/weights/weight_plan.h"

namespace imp {

// `needs` are those apart from weights. Throws InvalidArgument as Backend::scratch_bytes().
std::size_t op_scratch_bytes(WorkspaceNeeds needs, const WeightPlan& plan, const Backend& backend);

// Turns a backend's InvalidArgument into a ModelError: here the checkpoint asked, not the caller.
template <class Function>
auto as_unsupported(const ModelFile& file, const Function& function) {
  try {
    return function();
  } catch (const InvalidArgument& error) {
    throw ModelError(Reason::MODEL_UNSUPPORTED, file.name() + ": " + error.what());
  }
}

}  // namespace imp

// A model on a device of its own, ready to evaluate.
#pragma once

#include <memory>

#include "backend/make_backend.h"
#include "model/decoder.h"
#include "model/model.h"

namespace imp {

// Members are destroyed in the reverse order: nothing outlives what it uses.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  std::unique_ptr<Decoder> decoder;
};

// The file need not outlive the model.
LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options);

}  // namespace imp

// The device and the memory of a model, as Python gives them.
#pragma once

#include "backend/make_backend.h"
#include "model/loaded_model.h"

namespace imp::bindings {

// Arguments of a load besides the file and its overrides.
struct PythonLoadOptions {
  DeviceOptions device;
  LoadOptions load;
};

}  // namespace imp::bindings

// The engine as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

// Engine, EngineOptions, EngineStats, the parts of commands, and the events. After the errors and the class Model.
void register_engine(pybind11::module_& module);

}  // namespace imp::bindings

// Models as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_model(pybind11::module_& module);

}  // namespace imp::bindings

// Checkpoints of random weights, described from Python.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_synthetic(pybind11::module_& module);

}  // namespace imp::bindings

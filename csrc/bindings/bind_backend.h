// Instruction sets and kernels as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_backend(pybind11::module_& module);

}  // namespace imp::bindings

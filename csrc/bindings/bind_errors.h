// The core's errors as Python exceptions.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

// Adds Error and its subclasses to the module and translates C++ errors into them. Each has `.reason` (str),
// `.message` (str) and `.details` (dict[str, str]).
void register_errors(pybind11::module_& module);

}  // namespace imp::bindings

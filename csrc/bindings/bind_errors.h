// The core's errors as Python exceptions.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

// Adds Error and its subclasses to the module `_core`. Each has `.reason` (str), `.message` (str) and `.details`
// (dict[str, str]).
void register_errors(pybind11::module_& module);

// Translates C++ errors that the functions of this extension throw, and of no other, into the errors of `_core`.
void translate_errors();

}  // namespace imp::bindings

// What the tests of tensor/ and files/ reach beyond the product's bindings.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_files_testing(pybind11::module_& module);

}  // namespace imp::bindings

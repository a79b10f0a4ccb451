// What the tests of model/ reach beyond the product's bindings.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_model_testing(pybind11::module_& module);

}  // namespace imp::bindings

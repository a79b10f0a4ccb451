// The functions of `_testing` for the tests of model/.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_model_testing(pybind11::module_& module);
void register_testing_vision(pybind11::module_& module);

}  // namespace imp::bindings

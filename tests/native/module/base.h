// The part of `_testing` for csrc/base.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_testing_base(pybind11::module_& module);

}  // namespace imp::bindings

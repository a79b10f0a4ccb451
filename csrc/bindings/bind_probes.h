// What the machine can do, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_probes(pybind11::module_& module);

}  // namespace imp::bindings

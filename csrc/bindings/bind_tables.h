// The core's tables as data: what the service checks, describes and documents by.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_tables(pybind11::module_& module);

}  // namespace imp::bindings

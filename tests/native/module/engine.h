// The part of `_testing` for the engine: engines over a script model, and the engine's parts.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_testing_engine(pybind11::module_& module);
void register_testing_blocks(pybind11::module_& module);
void register_testing_media(pybind11::module_& module);
void register_testing_speculation(pybind11::module_& module);
void register_testing_sparse(pybind11::module_& module);
void register_testing_scheduler(pybind11::module_& module);

}  // namespace imp::bindings

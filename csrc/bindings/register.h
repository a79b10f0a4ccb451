// The functions that register the bindings, in the order in which module.cpp calls them.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

// Adds Error and its subclasses to the module `_core`. Each has `.reason` (str), `.message` (str) and `.details`
// (dict[str, str]).
void register_errors(pybind11::module_& module);
// Translates the C++ errors of this extension's functions into the errors of `_core`. Other extensions are not
// affected.
void translate_errors();
void register_backend(pybind11::module_& module);
void register_probes(pybind11::module_& module);
void register_tables(pybind11::module_& module);
void register_files(pybind11::module_& module);
void register_text(pybind11::module_& module);
void register_synthetic(pybind11::module_& module);
void register_overrides(pybind11::module_& module);
// LoadOptions: the keywords of Model.load and of plan_model.
void register_load_options(pybind11::module_& module);
void register_model(pybind11::module_& module);
// Engine, EngineOptions, EngineStats, the parts of commands, and the events. Needs the errors and the class Model.
void register_engine(pybind11::module_& module);

}  // namespace imp::bindings

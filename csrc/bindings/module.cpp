// The extension module `_core`.
#include <pybind11/pybind11.h>

#include "bindings/register.h"

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used()) {
  module.doc() = "imp's core: model files, models and the engine";
  imp::bindings::register_errors(module);
  imp::bindings::translate_errors();
  imp::bindings::register_backend(module);
  imp::bindings::register_probes(module);
  imp::bindings::register_tables(module);
  imp::bindings::register_files(module);
  imp::bindings::register_text(module);
  imp::bindings::register_synthetic(module);
  imp::bindings::register_overrides(module);
  imp::bindings::register_load_options(module);
  imp::bindings::register_model(module);
  imp::bindings::register_engine(module);
}

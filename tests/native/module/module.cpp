// The extension `_testing`: parts of the core that only tests call.
#include <pybind11/pybind11.h>

#include "bindings/register.h"
#include "native/module/base.h"
#include "native/module/engine.h"
#include "native/module/files.h"
#include "native/module/gemm.h"
#include "native/module/model.h"
#include "native/module/ops.h"

PYBIND11_MODULE(_testing, module, pybind11::mod_gil_not_used()) {
  module.doc() = "parts of imp's core that only tests call";
  // The exception types are those of _core, so that a test catches one type for both extensions.
  pybind11::module_::import("imp_service._core");
  imp::bindings::translate_errors();
  imp::bindings::register_testing_engine(module);
  imp::bindings::register_testing_blocks(module);
  imp::bindings::register_testing_media(module);
  imp::bindings::register_testing_scheduler(module);
  imp::bindings::register_testing_speculation(module);
  imp::bindings::register_testing_sparse(module);
  imp::bindings::register_files_testing(module);
  imp::bindings::register_testing_base(module);
  imp::bindings::register_testing_gemm_registry(module);
  imp::bindings::register_testing_gemm_kernels(module);
  imp::bindings::register_testing_tile_kernels(module);
  imp::bindings::register_testing_cuda_gemm(module);
  imp::bindings::register_testing_cuda_places(module);
  imp::bindings::register_testing_cuda_attention(module);
  imp::bindings::register_model_testing(module);
  imp::bindings::register_testing_vision(module);
  imp::bindings::register_testing_ops(module);
  imp::bindings::register_testing_attention(module);
  imp::bindings::register_testing_recurrence(module);
  imp::bindings::register_testing_experts(module);
  imp::bindings::register_testing_sampler(module);
  imp::bindings::register_testing_emulated_gpu(module);
  imp::bindings::register_testing_gpu_bench(module);
}

// The part of `_testing` for matrix kernels and their registry.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_testing_gemm_registry(pybind11::module_& module);
void register_testing_gemm_kernels(pybind11::module_& module);
void register_testing_cuda_gemm(pybind11::module_& module);
void register_testing_cuda_places(pybind11::module_& module);
void register_testing_cuda_attention(pybind11::module_& module);

}  // namespace imp::bindings

// The part of `_testing` for matrix kernels and their registry.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "backend/gemm.h"

namespace imp::bindings {

// The kernels for AMX as tests can run them everywhere: with portable tiles (TYPE_twin); and on x86, as they are
// compiled, with emulated instructions on tiles (TYPE_emulated), which one thread at a time may run.
std::vector<GemmKernel> test_kernels();
// Those, and the kernels of the product.
std::vector<GemmKernel> all_kernels();
// A kernel with an error.
GemmKernel broken_twin();

void register_testing_gemm_registry(pybind11::module_& module);
void register_testing_gemm_kernels(pybind11::module_& module);
void register_testing_tile_kernels(pybind11::module_& module);
void register_testing_cuda_gemm(pybind11::module_& module);
void register_testing_cuda_places(pybind11::module_& module);
void register_testing_cuda_attention(pybind11::module_& module);

}  // namespace imp::bindings

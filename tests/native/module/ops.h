// The part of `_testing` for the ops of a backend and the inner steps of the sampler.
#pragma once

#include <pybind11/pybind11.h>

namespace imp::bindings {

void register_testing_emulated_gpu(pybind11::module_& module);
void register_testing_gpu_bench(pybind11::module_& module);

void register_testing_ops(pybind11::module_& module);
void register_testing_attention(pybind11::module_& module);
void register_testing_recurrence(pybind11::module_& module);
void register_testing_experts(pybind11::module_& module);
void register_testing_sampler(pybind11::module_& module);

}  // namespace imp::bindings

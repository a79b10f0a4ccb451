// `_testing`: how the backend on the emulated GPU ran its steps, and in which order threads run there.

// Everything of the CUDA backend that is named below is the emulated device's.
#define cuda cuda_emulated

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/images.h"
#include "bindings/testing_device.h"
#include "bindings/testing_ops.h"
#include "model/loaded_model.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

cuda::CudaBackend& emulated(Backend& backend) {
  auto* const found = dynamic_cast<cuda::CudaBackend*>(&backend);
  if (found == nullptr) throw std::invalid_argument("not on the emulated GPU");
  return *found;
}

py::dict step_counts(LoadedModel& model) {
  const cuda::StepGraphCounts& counts = emulated(*model.backend).step_counts();
  return py::dict(py::arg("eager") = counts.eager, py::arg("captures") = counts.captures,
                  py::arg("replays") = counts.replays, py::arg("evictions") = counts.evictions,
                  py::arg("failures") = counts.failures);
}

void set_thread_order(Backend& backend, unsigned seed) {
  emulated(backend).stream().thread_order = seed;
}

}  // namespace

void register_testing_emulated_gpu(py::module_& module) {
  module.def("gpu_step_counts", &step_counts, py::arg("model"),
             "Steps of a model on the emulated GPU, by how they ran.");
  module.def(
      "set_thread_order", [](TestingDevice& device, unsigned seed) { set_thread_order(device.backend(), seed); },
      py::arg("device"), py::arg("seed"), "In which order the threads of a block run from now on.");
  module.def(
      "set_thread_order", [](LoadedModel& model, unsigned seed) { set_thread_order(*model.backend, seed); },
      py::arg("model"), py::arg("seed"));
  module.def(
      "gpu_images_serve",
      [](const std::string& images, int capability) {
        return std::make_pair(cuda::serve(images, capability), cuda::have_wgmma(images, capability));
      },
      py::arg("images"), py::arg("capability"),
      "Whether a build with code for these GPUs has some for this one, and products of warpgroups.");
  module.def(
      "device_bytes_left", [](LoadedModel& model) { return model.backend->own_memory_bytes(); }, py::arg("model"),
      "Of the device's own memory; None where it is the process's.");
}

}  // namespace imp::bindings

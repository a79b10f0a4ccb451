// `_testing`: counts how a GPU ran its steps, and sets the thread order of the emulated GPU.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "backend/cuda/device/images.h"
#include "model/loaded_model.h"
#include "native/emulator/faults.h"
#include "native/gpu/backend_memory.h"
#include "native/gpu/thread_order.h"
#include "native/module/device.h"
#include "native/module/ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

cuda::Stream& stream_of(Backend& backend) {
  if (!cuda::is_of_this_device(backend)) throw std::invalid_argument("not on the emulated GPU");
  return cuda::stream_of(backend);
}

py::dict step_counts(LoadedModel& model) {
  const std::optional<StepGraphCounts> found = model.backend->step_graphs();
  if (!found) throw std::invalid_argument("not on a GPU");
  const StepGraphCounts& counts = *found;
  return py::dict(py::arg("eager") = counts.eager, py::arg("captures") = counts.captures,
                  py::arg("replays") = counts.replays, py::arg("evictions") = counts.evictions,
                  py::arg("failures") = counts.failures, py::arg("last_failure") = std::string(counts.last_failure));
}

py::tuple pieces(LoadedModel& model) {
  const cuda::emu::Pieces found = cuda::emu::pieces(stream_of(*model.backend));
  return py::make_tuple(found.asked, found.held);
}

void set_thread_order(Backend& backend, unsigned seed) {
  cuda::set_thread_order(stream_of(backend), seed);
}

}  // namespace

void register_testing_emulated_gpu(py::module_& module) {
  module.def("gpu_step_counts", &step_counts, py::arg("model"),
             "The number of steps of a model on a GPU, by how they ran.");
  module.def(
      "set_thread_order", [](TestingDevice& device, unsigned seed) { set_thread_order(device.backend(), seed); },
      py::arg("device"), py::arg("seed"), "Sets the order of the threads of a block.");
  module.def(
      "set_thread_order", [](LoadedModel& model, unsigned seed) { set_thread_order(*model.backend, seed); },
      py::arg("model"), py::arg("seed"));
  module.def(
      "gpu_images_serve",
      [](const std::string& images, int capability) {
        return std::make_pair(cuda::can_run(images, capability), cuda::have_wgmma(images, capability));
      },
      py::arg("images"), py::arg("capability"),
      "Whether a build for these GPUs has code for this one, and warpgroup products.");
  module.def(
      "emulated_gpu_pieces", &pieces, py::arg("model"),
      "Allocations of the emulated GPU's memory and of memory shared with it, of all models: in total, and now.");
  module.def(
      "device_bytes_left", [](LoadedModel& model) { return model.backend->own_memory_bytes(); }, py::arg("model"),
      "The bytes of the device's own memory; None if it uses the memory of the process.");
}

}  // namespace imp::bindings

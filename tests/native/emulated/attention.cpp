// `_testing`: how the CUDA backend divides attention into work items, and what it needs of a device and its memory.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/split_schedule.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/runtime.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::cuda {
namespace {

// The search of the kernels: the work items of one of several blocks, then the states of each sequence.
__global__ void search_kernel(AttentionArgs args, int first, int step, std::vector<WorkItem>* items,
                              std::vector<StatesOfSequence>* states) {
  SplitScheduler search;
  for (int number = first;; number += step) {
    const WorkItem found = search.find(args, number);
    if (lane_of_thread() == 0) items->push_back(found);
    if (found.sequence < 0) break;
  }
  for (int sequence = 0; sequence < args.sequences.n_sequences; ++sequence) {
    const StatesOfSequence found = states_of(args, sequence);
    if (lane_of_thread() == 0) states->push_back(found);
  }
}

py::tuple division(const std::vector<std::pair<int, int>>& sequences, int n_states, int window, int first, int step) {
  std::vector<std::int32_t> row_counts, positions;
  for (const auto& [n_rows, position] : sequences) {
    row_counts.push_back(n_rows);
    positions.push_back(position);
  }
  AttentionArgs args = {};
  args.sequences.n_sequences = static_cast<int>(sequences.size());
  args.sequences.row_counts = row_counts.data();
  args.sequences.first_positions = positions.data();
  args.window = window;
  args.n_states = n_states;
  std::vector<WorkItem> items;
  std::vector<StatesOfSequence> states;
  Stream stream;
  make_stream(stream);
  launch(stream, search_kernel, {.grid = 1, .block = kWarpSize}, args, first, step, &items, &states);
  synchronize(stream);
  free_stream(stream);
  py::list of_items, of_states;
  for (const WorkItem& item : items) of_items.append(py::make_tuple(item.sequence, item.within, item.state));
  for (const StatesOfSequence& one : states) of_states.append(py::make_tuple(one.first, one.n));
  return py::make_tuple(of_items, of_states);
}

void require_supported(std::size_t shared_bytes, const std::string& dtype, int head_dim) {
  Stream stream;
  DeviceCaps caps;
  caps.shared_bytes = shared_bytes;
  KvGeometry geometry;
  geometry.layers = equal_layers(1, {.n_kv_heads = 1, .head_dim = head_dim, .types = kv_types_from(dtype).value()});
  Attention(stream, caps).require_supported(geometry);
}

std::size_t scratch_bytes(int max_sequences, int max_context, int n_heads, int head_dim) {
  Stream stream;
  const DeviceCaps caps;
  AttentionParams params;
  params.n_heads = n_heads;
  params.n_kv_heads = 1;
  params.head_dim = head_dim;
  return Attention(stream, caps).scratch_bytes(max_sequences, max_context, params);
}

}  // namespace
}  // namespace imp::cuda

namespace imp::bindings {

void register_testing_cuda_attention(py::module_& module) {
  module.def("attention_division", &cuda::division, py::arg("sequences"), py::arg("n_states"), py::arg("window") = 0,
             py::arg("first") = 0, py::arg("step") = 1,
             "For sequences of (rows, position of the first): the work items first, first + step, … as (sequence, "
             "split, state), and the states of each sequence as (first, number).");
  module.def("attention_require_served", &cuda::require_supported, py::arg("shared_bytes"), py::arg("dtype"),
             py::arg("head_dim"));
  module.def("attention_scratch_bytes", &cuda::scratch_bytes, py::arg("max_sequences"), py::arg("max_context"),
             py::arg("n_heads"), py::arg("head_dim"));
}

}  // namespace imp::bindings

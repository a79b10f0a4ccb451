// `_testing.States`: a pool of recurrent states with its backend. It runs the ops on the states, and reads the slots.
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "backend/cpu/kv/cpu_kv_pool.h"
#include "native/module/device.h"
#include "native/module/ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// (rows of the batch, slot of the state or -1, [(rows, slot to write)])
using Sequence = std::tuple<int, std::int32_t, std::vector<std::pair<int, std::int32_t>>>;

// Sequences of a batch, one after the other.
class StateBatch {
 public:
  explicit StateBatch(const std::vector<Sequence>& sequences) {
    for (const auto& [n_rows, state, saves] : sequences) {
      saves_.emplace_back();
      for (const auto& [after, slot] : saves) saves_.back().push_back({.n_rows = after, .slot = slot});
    }
    int first_row = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      rows_.push_back({.first_row = first_row,
                       .n_rows = std::get<0>(sequences[i]),
                       .first_position = 0,
                       .blocks = {},
                       .state = std::get<1>(sequences[i]),
                       .state_saves = saves_[i]});
      first_row += rows_.back().n_rows;
    }
  }
  std::span<const SequenceRows> rows() const { return rows_; }

 private:
  std::vector<std::vector<StateSave>> saves_;
  std::vector<SequenceRows> rows_;
};

class TestingStates {
 public:
  TestingStates(std::shared_ptr<TestingDevice> device, int n_layers, int conv_taps, int conv_width,
                std::array<int, 3> state_shape, int n_slots)
      : device_(std::move(device)) {
    pool_ = device_->backend().make_kv_pool({.layers = equal_layers(1, {1, 8, {KvType::f32, KvType::f32}}),
                                             .n_blocks = 1,
                                             .state = {.n_layers = n_layers,
                                                       .conv_taps = conv_taps,
                                                       .conv_width = conv_width,
                                                       .n_heads = state_shape[0],
                                                       .key_dim = state_shape[1],
                                                       .value_dim = state_shape[2],
                                                       .n_slots = n_slots}});
  }

  std::size_t n_bytes() const { return pool_->n_bytes(); }

  // Every float of every slot.
  void fill(float value) {
    const StateGeometry& state = pool_->geometry().state;
    const std::size_t n = state.slot_bytes() / sizeof(float) * static_cast<std::size_t>(state.n_slots);
    std::fill_n(cpu_pool().conv_state(0, 0), n, value);
  }

  // (the convolution's inputs [taps, width], the matrices [heads, key, value])
  std::pair<Floats, Floats> read(int layer, std::int32_t slot) const {
    const StateGeometry& state = pool_->geometry().state;
    Floats inputs({state.conv_taps, state.conv_width});
    std::copy_n(cpu_pool().conv_state(layer, slot), inputs.size(), inputs.mutable_data());
    Floats matrices({state.n_heads, state.key_dim, state.value_dim});
    std::copy_n(cpu_pool().delta_state(layer, slot), matrices.size(), matrices.mutable_data());
    return {inputs, matrices};
  }

  Floats short_conv(int layer, const std::vector<Sequence>& sequences, const Floats& x, const Floats& weight) {
    const Rows rows = device_->to_rows(x);
    const Rows out = device_->empty_rows(rows.n_rows, rows.width);
    const auto taps = vector(weight);
    device_->backend().short_conv(*pool_, layer, StateBatch(sequences).rows(), rows, *taps, out);
    return device_->to_array(out);
  }

  // The rows are (qkv, alpha, beta); the vectors are (decay_rates, dt_bias).
  Floats delta_rule(int layer, const std::vector<Sequence>& sequences, int n_key_heads, bool is_interleaved,
                    const std::array<Floats, 3>& rows, const std::array<Floats, 2>& vectors) {
    const StateGeometry& state = pool_->geometry().state;
    const DeltaRule rule = {.n_key_heads = n_key_heads,
                            .n_value_heads = state.n_heads,
                            .key_dim = state.key_dim,
                            .value_dim = state.value_dim,
                            .is_interleaved = is_interleaved};
    const auto decay_rates = vector(vectors[0]), dt_bias = vector(vectors[1]);
    const Rows qkv = device_->to_rows(rows[0]);
    const Rows out = device_->empty_rows(qkv.n_rows, rule.value_width());
    device_->backend().delta_rule(
        *pool_, layer, StateBatch(sequences).rows(), rule,
        {qkv, device_->to_rows(rows[1]), device_->to_rows(rows[2]), decay_rates.get(), dt_bias.get()}, out);
    return device_->to_array(out);
  }

 private:
  const cpu::CpuKvPool& cpu_pool() const { return dynamic_cast<const cpu::CpuKvPool&>(*pool_); }
  std::unique_ptr<Vector> vector(const Floats& values) {
    return device_->backend().load_vector({values.data(), static_cast<std::size_t>(values.size())});
  }

  std::shared_ptr<TestingDevice> device_;
  std::unique_ptr<KvPool> pool_;
};

}  // namespace

void register_testing_recurrence(py::module_& module) {
  py::class_<TestingStates>(module, "States",
                            "A pool of recurrent states. A sequence is (rows, slot or -1, [(rows, slot to write)]).")
      .def(py::init<std::shared_ptr<TestingDevice>, int, int, int, std::array<int, 3>, int>(), py::arg("device"),
           py::kw_only(), py::arg("n_layers") = 1, py::arg("conv_taps"), py::arg("conv_width"), py::arg("state_shape"),
           py::arg("n_slots"))
      .def_property_readonly("n_bytes", &TestingStates::n_bytes)
      .def("fill", &TestingStates::fill, py::arg("value"))
      .def("read", &TestingStates::read, py::arg("layer"), py::arg("slot"))
      .def("short_conv", &TestingStates::short_conv, py::arg("layer"), py::arg("sequences"), py::arg("x"),
           py::arg("weight"))
      .def("delta_rule", &TestingStates::delta_rule, py::arg("layer"), py::arg("sequences"), py::arg("n_key_heads"),
           py::arg("is_interleaved"), py::arg("rows"), py::arg("vectors"));
}

}  // namespace imp::bindings

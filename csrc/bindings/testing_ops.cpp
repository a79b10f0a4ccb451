// `_testing.Device`: every op of a CPU backend on arrays, for each instruction set and number of threads.
#include "bindings/testing_ops.h"

#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings/testing_device.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

std::unique_ptr<Vector> vector_of(TestingDevice& device, const Floats& values) {
  return device.backend().load_vector({values.data(), static_cast<std::size_t>(values.size())});
}

RopeStyle style_of(const std::string& style) {
  if (style == "adjacent") return RopeStyle::adjacent;
  if (style == "halves") return RopeStyle::halves;
  throw std::invalid_argument("no rope style " + style);
}

GatedActivation activation_of(const std::string& kind) {
  if (kind == "silu") return GatedActivation::silu;
  if (kind == "gelu_tanh") return GatedActivation::gelu_tanh;
  throw std::invalid_argument("no activation " + kind);
}

Floats rms_norm(TestingDevice& device, const Floats& x, const Floats& weight, float epsilon, bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  device.backend().rms_norm(rows, *vector_of(device, weight), epsilon, out);
  return TestingDevice::to_array(out);
}

Floats rope_angles(TestingDevice& device, const Ints& positions, const std::vector<double>& frequencies,
                   float magnitude) {
  const Rope rope = {
      .dims = static_cast<int>(2 * frequencies.size()), .frequencies = frequencies, .magnitude = magnitude};
  const Rows out = device.empty_rows(static_cast<int>(positions.size()), rope.dims);
  device.backend().rope_angles(span_of(positions), rope, out);
  return TestingDevice::to_array(out);
}

Floats rope(TestingDevice& device, const Floats& x, int head_dim, const std::string& style, const Floats& angles) {
  const Rows rows = device.to_rows(x);
  const Rope rope = {.style = style_of(style), .dims = static_cast<int>(angles.shape(1)), .frequencies = {}};
  device.backend().rope(rows, head_dim, rope, device.to_rows(angles));
  return TestingDevice::to_array(rows);
}

Floats gated_activation(TestingDevice& device, const std::string& kind, const Floats& gate, const Floats& up,
                        const std::string& into) {
  const Rows gates = device.to_rows(gate);
  const Rows ups = device.to_rows(up);
  Rows out = into == "gate" ? gates : ups;
  if (into == "new") out = device.empty_rows(gates.n_rows, gates.width);
  device.backend().gated_activation(activation_of(kind), gates, ups, out);
  return TestingDevice::to_array(out);
}

Floats add(TestingDevice& device, const Floats& x, const Floats& y) {
  const Rows rows = device.to_rows(x);
  device.backend().add(rows, device.to_rows(y));
  return TestingDevice::to_array(rows);
}

Floats add_gated(TestingDevice& device, const Floats& x, const Floats& y, const Floats& gates) {
  const Rows rows = device.to_rows(x);
  device.backend().add_gated(rows, device.to_rows(y), device.to_rows(gates));
  return TestingDevice::to_array(rows);
}

Floats soft_cap(TestingDevice& device, const Floats& x, float cap) {
  const Rows rows = device.to_rows(x);
  device.backend().soft_cap(rows, cap);
  return TestingDevice::to_array(rows);
}

Floats gather_rows(TestingDevice& device, const Floats& x, const Ints& indices) {
  const Rows rows = device.to_rows(x);
  const Rows out = device.empty_rows(static_cast<int>(indices.size()), rows.width);
  device.backend().gather_rows(rows, span_of(indices), out);
  return TestingDevice::to_array(out);
}

Floats read_row(TestingDevice& device, const Floats& x, int row) {
  const Rows rows = device.to_rows(x);
  Floats out(rows.width);
  device.backend().read_row(rows, row, {out.mutable_data(), static_cast<std::size_t>(rows.width)});
  return out;
}

// `table` is the bytes of [n, k] in the file's format of `dtype`.
Floats embed(TestingDevice& device, const Ints& tokens, const std::string& dtype, const py::bytes& table, int n, int k,
             float scale) {
  Backend& backend = device.backend();
  const std::string bytes = table;
  const auto type = dtype_from_name(dtype);
  if (!type) throw std::invalid_argument("no dtype " + dtype);
  const GemmProblem problem = {*type, n, k};
  const auto row = static_cast<std::size_t>(*row_bytes(*type, k));
  const WeightSource source = {"table", problem, [&](std::int64_t first, std::int64_t n_rows, std::byte* out) {
                                 std::memcpy(out, bytes.data() + static_cast<std::size_t>(first) * row,
                                             static_cast<std::size_t>(n_rows) * row);
                               }};
  const auto weight = backend.load_linear(source, backend.registry().plan(problem, "table", {}));
  backend.reserve({.max_rows = static_cast<int>(tokens.size()),
                   .max_logits_rows = 1,
                   .vocab_size = n,
                   .max_context = 16,
                   .attention = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 8},
                   .weights = {weight.get()}});
  const Rows out = device.empty_rows(static_cast<int>(tokens.size()), k);
  backend.embed(span_of(tokens), *weight, scale, out);
  return TestingDevice::to_array(out);
}

py::dict launches(TestingDevice& device) {
  py::dict result;
  for (const Launch& launch : device.backend().launches()) result[py::str(std::string(launch.name))] = launch.count;
  return result;
}

}  // namespace

void register_testing_ops(py::module_& module) {
  py::class_<TestingDevice, std::shared_ptr<TestingDevice>>(module, "Device",
                                                            "A CPU backend; its ops take and give arrays.")
      .def(py::init<const std::string&, int>(), py::kw_only(), py::arg("isa") = "auto", py::arg("n_threads") = 1)
      .def_property_readonly("name", [](TestingDevice& device) { return device.backend().device_name(); })
      .def_property_readonly("scratch_bytes", [](TestingDevice& device) { return device.backend().scratch_bytes(); })
      .def("launches", &launches)
      .def("rms_norm", &rms_norm, py::arg("x"), py::arg("weight"), py::arg("epsilon"), py::arg("in_place") = false)
      .def("rope_angles", &rope_angles, py::arg("positions"), py::arg("frequencies"), py::arg("magnitude") = 1.0F)
      .def("rope", &rope, py::arg("x"), py::arg("head_dim"), py::arg("style"), py::arg("angles"))
      .def("gated_activation", &gated_activation, py::arg("kind"), py::arg("gate"), py::arg("up"),
           py::arg("into") = "new")
      .def("add", &add, py::arg("x"), py::arg("y"))
      .def("add_gated", &add_gated, py::arg("x"), py::arg("y"), py::arg("gates"))
      .def("soft_cap", &soft_cap, py::arg("x"), py::arg("cap"))
      .def("gather_rows", &gather_rows, py::arg("x"), py::arg("rows"))
      .def("read_row", &read_row, py::arg("x"), py::arg("row"))
      .def("embed", &embed, py::arg("tokens"), py::arg("dtype"), py::arg("table"), py::arg("n"), py::arg("k"),
           py::arg("scale") = 1.0F);
}

}  // namespace imp::bindings

// `_testing.Device`: every op of a CPU backend on arrays, for each instruction set and number of threads.
#include "native/module/ops.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "native/module/backend_memory.h"
#include "native/module/device.h"
#include "native/module/weights.h"

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
  if (kind == "gelu_erf") return GatedActivation::gelu_erf;
  throw std::invalid_argument("no activation " + kind);
}

Floats rms_norm(TestingDevice& device, const Floats& x, const Floats& weight, float epsilon, bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  const auto vector = vector_of(device, weight);
  device.backend().rms_norm(rows, {vector.get(), epsilon}, out);
  return device.to_array(out);
}

// Returns the sum and the normalized sum.
py::tuple add_norm(TestingDevice& device, const Floats& x, const Floats& y, const Floats& weight, float epsilon) {
  const Rows rows = device.to_rows(x);
  const Rows out = device.empty_rows(rows.n_rows, rows.width);
  const auto vector = vector_of(device, weight);
  device.backend().add_norm(rows, device.to_rows(y), {vector.get(), epsilon}, out);
  return py::make_tuple(device.to_array(rows), device.to_array(out));
}

// positions: [n], or [planes, n] with the plane of each frequency.
Floats rope_angles(TestingDevice& device, const Ints& positions, const std::vector<double>& frequencies,
                   float magnitude, const std::vector<std::uint8_t>& planes) {
  const Rope rope = {.dims = static_cast<int>(2 * frequencies.size()),
                     .frequencies = frequencies,
                     .magnitude = magnitude,
                     .planes = planes};
  const auto n = static_cast<int>(positions.shape(positions.ndim() - 1));
  device.backend().reserve(needs_of(n, {}));
  const Rows out = device.empty_rows(n, rope.dims);
  device.backend().rope_angles(span_of(positions), rope, out);
  return device.to_array(out);
}

Floats rope(TestingDevice& device, const Floats& x, int head_dim, const std::string& style, const Floats& angles,
            const std::optional<Floats>& norm_weight, float epsilon) {
  const Rows rows = device.to_rows(x);
  const Rope rope = {.style = style_of(style), .dims = static_cast<int>(angles.shape(1)), .frequencies = {}};
  const auto vector = norm_weight ? vector_of(device, *norm_weight) : nullptr;
  device.backend().rope(rows, head_dim, {vector.get(), epsilon}, rope, device.to_rows(angles));
  return device.to_array(rows);
}

Floats gated_activation(TestingDevice& device, const std::string& kind, const Floats& gate, const Floats& up,
                        const std::string& into) {
  const Rows gates = device.to_rows(gate);
  const Rows ups = device.to_rows(up);
  Rows out = into == "gate" ? gates : ups;
  if (into == "new") out = device.empty_rows(gates.n_rows, gates.width);
  device.backend().gated_activation(activation_of(kind), gates, ups, out);
  return device.to_array(out);
}

Floats clamped_activation(TestingDevice& device, const Floats& gate, const Floats& up, float limit, float slope,
                          const std::string& into) {
  const Rows gates = device.to_rows(gate);
  const Rows ups = device.to_rows(up);
  Rows out = into == "gate" ? gates : ups;
  if (into == "new") out = device.empty_rows(gates.n_rows, gates.width);
  device.backend().clamped_activation({limit, slope}, gates, ups, out);
  return device.to_array(out);
}

Floats add(TestingDevice& device, const Floats& x, const Floats& y) {
  const Rows rows = device.to_rows(x);
  device.backend().add(rows, device.to_rows(y));
  return device.to_array(rows);
}

Floats add_gated(TestingDevice& device, const Floats& x, const Floats& y, const Floats& gates) {
  const Rows rows = device.to_rows(x);
  device.backend().add_gated(rows, device.to_rows(y), device.to_rows(gates));
  return device.to_array(rows);
}

Floats scale(TestingDevice& device, const Floats& x, float factor) {
  const Rows rows = device.to_rows(x);
  device.backend().scale(rows, factor);
  return device.to_array(rows);
}

Floats clamp(TestingDevice& device, const Floats& x, float low, float high, bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  device.backend().clamp(rows, low, high, out);
  return device.to_array(out);
}

Floats standardize(TestingDevice& device, const Floats& x, const Floats& mean, const Floats& factors) {
  const Rows rows = device.to_rows(x);
  device.backend().standardize(rows, *vector_of(device, mean), *vector_of(device, factors));
  return device.to_array(rows);
}

Floats layer_norm(TestingDevice& device, const Floats& x, const Floats& weight, const std::optional<Floats>& bias,
                  float epsilon, int run_length, bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  const auto weights = vector_of(device, weight);
  const auto biases = bias ? vector_of(device, *bias) : nullptr;
  device.backend().layer_norm(rows, run_length == 0 ? rows.width : run_length,
                              {.weight = weights.get(), .epsilon = epsilon, .bias = biases.get()}, out);
  return device.to_array(out);
}

Floats norm_heads(TestingDevice& device, const Floats& x, int run_length, const std::optional<Floats>& weight,
                  float epsilon, bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  const auto weights = weight ? vector_of(device, *weight) : nullptr;
  device.backend().norm_heads(rows, run_length, {.weight = weights.get(), .epsilon = epsilon}, out);
  return device.to_array(out);
}

PlainActivation plain_activation_of(const std::string& kind) {
  if (kind == "gelu_tanh") return PlainActivation::gelu_tanh;
  if (kind == "gelu_erf") return PlainActivation::gelu_erf;
  if (kind == "relu_squared") return PlainActivation::relu_squared;
  if (kind == "xielu") return PlainActivation::xielu;
  if (kind == "tanh") return PlainActivation::tanh;
  throw std::invalid_argument("no activation " + kind);
}

// `params` are those of XieluParams, in order.
Floats activate(TestingDevice& device, const std::string& kind, const Floats& x, const std::array<float, 4>& params) {
  const Rows rows = device.to_rows(x);
  device.backend().activate(plain_activation_of(kind), {params[0], params[1], params[2], params[3]}, rows);
  return device.to_array(rows);
}

Floats scale_by_position(TestingDevice& device, const Floats& x, const Ints& positions, float growth, int period) {
  const Rows rows = device.to_rows(x);
  device.backend().scale_by_position(rows, span_of(positions), {growth, period});
  return device.to_array(rows);
}

Floats multiply_sigmoid(TestingDevice& device, const Floats& x, const Floats& gates) {
  const Rows rows = device.to_rows(x);
  device.backend().multiply_sigmoid(rows, device.to_rows(gates));
  return device.to_array(rows);
}

Floats rms_norm_gated(TestingDevice& device, const Floats& x, const Floats& weight, float epsilon, const Floats& gates,
                      bool in_place) {
  const Rows rows = device.to_rows(x);
  const Rows out = in_place ? rows : device.empty_rows(rows.n_rows, rows.width);
  const auto weights = vector_of(device, weight);
  device.backend().rms_norm_gated(rows, {weights.get(), epsilon}, device.to_rows(gates), out);
  return device.to_array(out);
}

Floats soft_cap(TestingDevice& device, const Floats& x, float cap) {
  const Rows rows = device.to_rows(x);
  device.backend().soft_cap(rows, cap);
  return device.to_array(rows);
}

// runs: (first row, number of rows)
Floats mean_rows(TestingDevice& device, const Floats& x, const std::vector<std::pair<int, int>>& runs) {
  const Rows out = device.empty_rows(static_cast<int>(runs.size()), static_cast<int>(x.shape(1)));
  std::vector<RowRun> given;
  for (const auto& [first, n] : runs) given.push_back({first, n});
  device.backend().mean_rows(device.to_rows(x), given, out);
  return device.to_array(out);
}

Floats write_rows(TestingDevice& device, const Floats& values) {
  const Rows out = device.empty_rows(static_cast<int>(values.shape(0)), static_cast<int>(values.shape(1)));
  device.backend().write_rows({values.data(), static_cast<std::size_t>(values.size())}, out);
  return device.to_array(out);
}

Floats spread_columns(TestingDevice& device, const Floats& x, const Ints& columns, int width) {
  const Rows rows = device.to_rows(x);
  const Rows out = device.empty_rows(rows.n_rows, width);
  device.backend().spread_columns(rows, span_of(columns), out);
  return device.to_array(out);
}

Floats gather_rows(TestingDevice& device, const Floats& x, const Ints& indices) {
  const Rows rows = device.to_rows(x);
  device.backend().reserve(needs_of(static_cast<int>(indices.size()), {}));
  const Rows out = device.empty_rows(static_cast<int>(indices.size()), rows.width);
  device.backend().gather_rows(rows, span_of(indices), out);
  return device.to_array(out);
}

Floats read_row(TestingDevice& device, const Floats& x, int row) {
  const Rows rows = device.to_rows(x);
  Floats out(rows.width);
  device.backend().read_row(rows, row, {out.mutable_data(), static_cast<std::size_t>(rows.width)});
  return out;
}

// `table` is the bytes of [n, k] in the file's format of `dtype`.
Floats embed(TestingDevice& device, const Ints& tokens, const std::string& dtype, const Bytes& table, int n, int k,
             float scale, const Overrides& overrides) {
  const auto weight = weight_of(device.backend(), dtype, table, n, k, overrides);
  device.backend().reserve(needs_of(static_cast<int>(tokens.size()), {weight.get()}));
  const Rows out = device.empty_rows(static_cast<int>(tokens.size()), k);
  device.backend().embed(span_of(tokens), *weight, scale, out);
  return device.to_array(out);
}

// `table` is as above, with rows.size() rows.
Floats clustered_product(TestingDevice& device, const Floats& x, const Floats& scores, int n_used, const Ints& rows,
                         const std::string& dtype, const Bytes& table, const Overrides& overrides) {
  const Rows input = device.to_rows(x);
  const int n = static_cast<int>(rows.size());
  const auto weight = weight_of(device.backend(), dtype, table, n, input.width, overrides);
  device.backend().reserve(needs_of(input.n_rows, {weight.get()}));
  const Rows out = device.empty_rows(input.n_rows, n);
  device.backend().clustered_product(input, device.to_rows(scores), n_used, span_of(rows), *weight, out);
  return device.to_array(out);
}

// Type, file's bytes and bias of a matrix.
using Matrix = std::tuple<std::string, Bytes, std::optional<Floats>>;

Floats gated_linear(TestingDevice& device, const std::string& kind, const Floats& x, int n, const Matrix& gate,
                    const Matrix& up, const Overrides& overrides, bool deterministic, int fill) {
  const Rows rows = device.to_rows(x);
  std::unique_ptr<Linear> weights[2];
  std::unique_ptr<Vector> biases[2];
  for (int i = 0; i < 2; ++i) {
    const auto& [dtype, file, bias] = i == 0 ? gate : up;
    weights[i] = weight_of(device.backend(), dtype, file, n, rows.width, overrides, deterministic);
    if (bias) biases[i] = vector_of(device, *bias);
  }
  device.backend().reserve(needs_of(rows.n_rows, {weights[0].get(), weights[1].get()}));
  fill_scratch(device.backend(), static_cast<std::uint8_t>(fill));
  const Rows out = device.empty_rows(rows.n_rows, n);
  device.backend().gated_linear(rows, {weights[0].get(), biases[0].get(), weights[1].get(), biases[1].get(), out},
                                activation_of(kind));
  return device.to_array(out);
}

// Products of x with matrices. Fills the scratch with the byte `fill` before.
py::list linear(TestingDevice& device, const Floats& x, const std::vector<std::pair<int, Matrix>>& terms,
                const Overrides& overrides, bool deterministic, int fill) {
  Backend& backend = device.backend();
  const Rows rows = device.to_rows(x);
  std::vector<std::unique_ptr<Linear>> weights;
  std::vector<std::unique_ptr<Vector>> biases;
  std::vector<LinearTerm> products;
  std::vector<const Linear*> named;
  for (const auto& [n, matrix] : terms) {
    const auto& [dtype, file, bias] = matrix;
    weights.push_back(weight_of(backend, dtype, file, n, rows.width, overrides, deterministic));
    biases.push_back(bias ? vector_of(device, *bias) : nullptr);
    named.push_back(weights.back().get());
    products.push_back({named.back(), biases.back().get(), device.empty_rows(rows.n_rows, n)});
  }
  backend.reserve(needs_of(rows.n_rows, named));
  fill_scratch(backend, static_cast<std::uint8_t>(fill));
  backend.linear(rows, products);
  py::list outs;
  for (const LinearTerm& product : products) outs.append(device.to_array(product.out));
  return outs;
}

// Normalizes x, then multiplies it by a matrix of n rows. `announced`: the norm gets the matrix of the product.
// `doubled`: the normalized rows are doubled before the product.
Floats norm_linear(TestingDevice& device, const Floats& x, const Floats& norm_weight, int n, const Matrix& matrix,
                   const Overrides& overrides, bool announced, bool doubled) {
  Backend& backend = device.backend();
  const Rows rows = device.to_rows(x);
  const auto& [dtype, file, bias] = matrix;
  const auto weight = weight_of(backend, dtype, file, n, rows.width, overrides);
  const auto norm = vector_of(device, norm_weight);
  backend.reserve(needs_of(rows.n_rows, {weight.get()}));
  fill_scratch(backend, 0xA5);
  const Rows normed = device.empty_rows(rows.n_rows, rows.width), out = device.empty_rows(rows.n_rows, n);
  backend.rms_norm(rows, {norm.get(), 1e-6F, announced ? weight.get() : nullptr}, normed);
  if (doubled) backend.add(normed, normed);
  const LinearTerm term{weight.get(), nullptr, out};
  backend.linear(normed, {&term, 1});
  return device.to_array(out);
}

// Loads several matrices [n, k] in one call. read(which, first row, number) returns rows; progress(bytes) gets the
// number of bytes read. Returns the bytes of each matrix on the device.
std::vector<std::size_t> load_linears(TestingDevice& device,
                                      const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>& shapes,
                                      const std::function<py::bytes(int, std::int64_t, std::int64_t)>& read,
                                      const std::function<void(std::uint64_t)>& progress) {
  std::vector<LinearRequest> requests;
  for (const auto& [dtype, n, k] : shapes) {
    const GemmProblem problem = {dtype_from_name(dtype).value(), n, k};
    const auto which = static_cast<int>(requests.size());
    const auto read_rows = [&read, which](std::int64_t first, std::int64_t n_rows, std::byte* out) {
      const py::gil_scoped_acquire lock;
      const std::string rows = read(which, first, n_rows);
      std::memcpy(out, rows.data(), rows.size());
    };
    requests.push_back({{std::to_string(which), problem, read_rows},
                        device.backend().registry().plan({problem.weight, 1, traits(problem.weight).block_elements},
                                                         "w", {}, {.unvalidated_kernels = true})});
  }
  const py::gil_scoped_release unlocked;
  const auto loaded = device.backend().load_linears(requests, [&](std::uint64_t n_bytes) {
    const py::gil_scoped_acquire lock;
    progress(n_bytes);
  });
  std::vector<std::size_t> sizes;
  for (const auto& weight : loaded) sizes.push_back(weight->n_bytes());
  return sizes;
}

// Returns the scratch bytes that the device predicts for such a matrix, and those that it holds after reserve().
py::tuple scratch_for(TestingDevice& device, const std::string& dtype, const Bytes& file, int n, int k, int n_rows,
                      const Overrides& overrides, bool deterministic) {
  const auto weight = weight_of(device.backend(), dtype, file, n, k, overrides, deterministic);
  const WorkspaceNeeds needs = needs_of(n_rows, {weight.get()});
  const std::size_t predicted = device.backend().scratch_bytes(needs);
  device.backend().reserve(needs);
  return py::make_tuple(predicted, device.backend().scratch_bytes());
}

py::dict launches(TestingDevice& device) {
  py::dict result;
  for (const Launch& launch : device.backend().launches()) result[py::str(std::string(launch.name))] = launch.count;
  return result;
}

}  // namespace

void register_testing_ops(py::module_& module) {
  py::class_<TestingDevice, std::shared_ptr<TestingDevice>>(module, "Device",
                                                            "A backend; its ops take and give arrays.")
      .def(py::init<const std::string&, const std::string&, int, const std::vector<std::string>&>(), py::kw_only(),
           py::arg("kind") = "cpu", py::arg("isa") = "auto", py::arg("n_threads") = 1,
           py::arg("cublaslt") = std::vector<std::string>{})
      .def_property_readonly("name", [](TestingDevice& device) { return device.backend().device_name(); })
      .def_property_readonly("scratch_bytes", [](TestingDevice& device) { return device.backend().scratch_bytes(); })
      .def("launches", &launches)
      .def("rms_norm", &rms_norm, py::arg("x"), py::arg("weight"), py::arg("epsilon"), py::arg("in_place") = false)
      .def("add_norm", &add_norm, py::arg("x"), py::arg("y"), py::arg("weight"), py::arg("epsilon"))
      .def("rope_angles", &rope_angles, py::arg("positions"), py::arg("frequencies"), py::arg("magnitude") = 1.0F,
           py::arg("planes") = std::vector<std::uint8_t>{})
      .def("rope", &rope, py::arg("x"), py::arg("head_dim"), py::arg("style"), py::arg("angles"),
           py::arg("norm_weight") = py::none(), py::arg("epsilon") = 0.0F)
      .def("linear", &linear, py::arg("x"), py::arg("terms"), py::kw_only(), py::arg("overrides") = Overrides{},
           py::arg("deterministic") = true, py::arg("fill") = 0)
      .def("norm_linear", &norm_linear, py::arg("x"), py::arg("norm_weight"), py::arg("n"), py::arg("matrix"),
           py::kw_only(), py::arg("overrides") = Overrides{}, py::arg("announced"), py::arg("doubled") = false)
      .def("load_linears", &load_linears, py::arg("shapes"), py::arg("read"), py::arg("progress"))
      .def("scratch_for", &scratch_for, py::arg("dtype"), py::arg("file"), py::arg("n"), py::arg("k"),
           py::arg("n_rows"), py::kw_only(), py::arg("overrides") = Overrides{}, py::arg("deterministic") = true)
      .def("gated_linear", &gated_linear, py::arg("kind"), py::arg("x"), py::arg("n"), py::arg("gate"), py::arg("up"),
           py::kw_only(), py::arg("overrides") = Overrides{}, py::arg("deterministic") = true, py::arg("fill") = 0)
      .def("gated_activation", &gated_activation, py::arg("kind"), py::arg("gate"), py::arg("up"),
           py::arg("into") = "new")
      .def("add", &add, py::arg("x"), py::arg("y"))
      .def("add_gated", &add_gated, py::arg("x"), py::arg("y"), py::arg("gates"))
      .def("scale", &scale, py::arg("x"), py::arg("factor"))
      .def("clamp", &clamp, py::arg("x"), py::arg("low"), py::arg("high"), py::arg("in_place") = false)
      .def("standardize", &standardize, py::arg("x"), py::arg("mean"), py::arg("factors"))
      .def("layer_norm", &layer_norm, py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("epsilon"),
           py::arg("run_length") = 0, py::arg("in_place") = false)
      .def("norm_heads", &norm_heads, py::arg("x"), py::arg("run_length"), py::arg("weight"), py::arg("epsilon"),
           py::arg("in_place") = false)
      .def("activate", &activate, py::arg("kind"), py::arg("x"), py::arg("params") = std::array<float, 4>{})
      .def("clamped_activation", &clamped_activation, py::arg("gate"), py::arg("up"), py::arg("limit"),
           py::arg("slope"), py::arg("into") = "new")
      .def("scale_by_position", &scale_by_position, py::arg("x"), py::arg("positions"), py::arg("growth"),
           py::arg("period"))
      .def("multiply_sigmoid", &multiply_sigmoid, py::arg("x"), py::arg("gates"))
      .def("rms_norm_gated", &rms_norm_gated, py::arg("x"), py::arg("weight"), py::arg("epsilon"), py::arg("gates"),
           py::arg("in_place") = false)
      .def("soft_cap", &soft_cap, py::arg("x"), py::arg("cap"))
      .def("write_rows", &write_rows, py::arg("values"))
      .def("mean_rows", &mean_rows, py::arg("x"), py::arg("runs"))
      .def("spread_columns", &spread_columns, py::arg("x"), py::arg("columns"), py::arg("width"))
      .def("gather_rows", &gather_rows, py::arg("x"), py::arg("rows"))
      .def("read_row", &read_row, py::arg("x"), py::arg("row"))
      .def("embed", &embed, py::arg("tokens"), py::arg("dtype"), py::arg("table"), py::arg("n"), py::arg("k"),
           py::arg("scale") = 1.0F, py::arg("overrides") = Overrides{})
      .def("clustered_product", &clustered_product, py::arg("x"), py::arg("scores"), py::arg("n_used"), py::arg("rows"),
           py::arg("dtype"), py::arg("table"), py::arg("overrides") = Overrides{});
}

}  // namespace imp::bindings

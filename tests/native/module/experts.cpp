// `_testing`: routing to experts, and the products of the rows of each expert.
#include <pybind11/stl.h>

#include "native/module/backend_memory.h"
#include "native/module/device.h"
#include "native/module/ops.h"
#include "native/module/weights.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

template <class Array, class T>
Array to_array(TestingDevice& device, const T* values, const std::vector<py::ssize_t>& shape) {
  Array array(shape);
  read_device(device.backend(), array.mutable_data(), values, static_cast<std::size_t>(array.nbytes()));
  return array;
}
Ints to_ints(TestingDevice& device, const std::int32_t* values, const std::vector<py::ssize_t>& shape) {
  return to_array<Ints>(device, values, shape);
}

ExpertRows route(TestingDevice& device, const Floats& scores, const ExpertRouting& routing) {
  const ExpertRows rows = device.backend().make_expert_rows(static_cast<int>(scores.shape(0)), routing);
  device.backend().route_experts(device.to_rows(scores), routing, rows);
  return rows;
}

ExpertRouting routing_of(const Floats& scores, int n_used, bool normalized, float scale) {
  return {.n_experts = static_cast<int>(scores.shape(1)), .n_used = n_used, .normalized = normalized, .scale = scale};
}

// The experts of each row, their weights, the grouped row for each, and the first grouped row of each expert. `factors`
// [n_experts] are given or not.
py::tuple route_experts(TestingDevice& device, const Floats& scores, int n_used, bool normalized, float scale,
                        const std::optional<Floats>& factors) {
  const ExpertRows rows = route(device, scores, routing_of(scores, n_used, normalized, scale));
  if (factors) {
    const std::span<const float> values(factors->data(), static_cast<std::size_t>(factors->size()));
    device.backend().scale_experts(rows, *device.backend().load_vector(values));
  }
  return py::make_tuple(to_ints(device, rows.experts, {rows.n_rows, n_used}),
                        to_array<Floats>(device, rows.weights, {rows.n_rows, n_used}),
                        to_ints(device, rows.grouped_rows, {rows.n_rows, n_used}),
                        to_ints(device, rows.begins, {rows.n_experts + 1}));
}

// A matrix [n, k] for each of the experts, whose types may differ.
std::vector<std::unique_ptr<Linear>> load(Backend& backend, const std::vector<std::string>& dtypes,
                                          const std::vector<Bytes>& files, int n, int k, const Overrides& overrides) {
  std::vector<std::unique_ptr<Linear>> weights;
  for (std::size_t expert = 0; expert < files.size(); ++expert) {
    weights.push_back(weight_of(backend, dtypes.at(expert), files[expert], n, k, overrides));
  }
  return weights;
}

// Returns the products of each row with its experts, [rows, n_used · n] by descending score, and their weighted sum
// [rows, n]. x has a row for each row of scores; if of_experts, it has one for each grouped row.
py::tuple expert_products(TestingDevice& device, const Floats& x, const Floats& scores, int n_used,
                          const std::vector<std::string>& dtypes, const std::vector<Bytes>& files, int n,
                          const std::optional<Floats>& biases, bool of_experts, const Overrides& overrides, int fill) {
  Backend& backend = device.backend();
  const ExpertRouting routing = routing_of(scores, n_used, true, 1);
  const auto weights = load(backend, dtypes, files, n, static_cast<int>(x.shape(1)), overrides);
  WorkspaceNeeds needs = needs_of(static_cast<int>(scores.shape(0)), {weights.front().get()});
  needs.experts = routing;
  for (const auto& weight : weights) needs.expert_weights.push_back(weight.get());
  backend.reserve(needs);
  fill_scratch(backend, static_cast<std::uint8_t>(fill));

  const ExpertRows rows = route(device, scores, routing);
  const Rows grouped = device.empty_rows(rows.n_rows * n_used, n);
  const auto bias_values =
      biases ? backend.load_vector({biases->data(), static_cast<std::size_t>(biases->size())}) : nullptr;
  const ExpertTerm term = {weights, grouped, bias_values.get()};
  if (of_experts) {
    backend.expert_linear_out(device.to_rows(x), rows, term);
  } else {
    backend.expert_linear_in(device.to_rows(x), rows, {&term, 1});
  }
  const Rows mixed = device.empty_rows(rows.n_rows, n);
  backend.mix_experts(grouped, rows, mixed);
  const Floats products = device.to_array(grouped);
  const Ints grouped_rows = to_ints(device, rows.grouped_rows, {rows.n_rows * n_used});
  Floats by_row({rows.n_rows, n_used, n});
  for (int i = 0; i < rows.n_rows * n_used; ++i) {
    std::copy_n(products.data(grouped_rows.at(i), 0), n, by_row.mutable_data() + i * n);
  }
  return py::make_tuple(by_row, device.to_array(mixed));
}

}  // namespace

void register_testing_experts(py::module_& module) {
  module.def("route_experts", &route_experts, py::arg("device"), py::arg("scores"), py::arg("n_used"), py::kw_only(),
             py::arg("normalized") = true, py::arg("scale") = 1.0F, py::arg("factors") = py::none());
  module.def("expert_products", &expert_products, py::arg("device"), py::arg("x"), py::arg("scores"), py::arg("n_used"),
             py::arg("dtypes"), py::arg("files"), py::arg("n"), py::kw_only(), py::arg("biases") = py::none(),
             py::arg("of_experts") = false, py::arg("overrides") = Overrides{}, py::arg("fill") = 0);
}

}  // namespace imp::bindings

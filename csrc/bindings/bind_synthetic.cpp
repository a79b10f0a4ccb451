// Checkpoints of random weights, described from Python.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include "files/synthetic.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

MetadataValue to_value(const std::string& key, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return {ValueType::BOOL, value.cast<bool>()};
  if (py::isinstance<py::int_>(value)) return {ValueType::U64, value.cast<std::uint64_t>()};
  if (py::isinstance<py::float_>(value)) return {ValueType::F32, value.cast<double>()};
  if (py::isinstance<py::str>(value)) return {ValueType::STRING, value.cast<std::string>()};
  throw FieldInvalid(key, "a value that is not a bool, int, float or str");
}

DType to_dtype(const SyntheticTensor& tensor, const std::string& name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) {
    throw FieldInvalid(tensor.name, "type " + name + ", expected one of " + dtype_names());
  }
  return *dtype;
}

std::unique_ptr<ModelFile> make(const py::dict& values, const py::list& rows) {
  Metadata metadata("random weights");
  for (const auto& [key, value] : values) {
    const auto name = key.cast<std::string>();
    metadata.insert(name, to_value(name, value));
  }
  std::vector<SyntheticTensor> tensors;
  for (const py::handle row : rows) {
    const auto [name, dtype, dims, mean, deviation] =
        row.cast<std::tuple<std::string, std::string, std::vector<std::int64_t>, float, float>>();
    tensors.push_back({name, DType::F32, dims, mean, deviation});
    tensors.back().dtype = to_dtype(tensors.back(), dtype);
  }
  return make_synthetic_file(std::move(metadata), tensors);
}

}  // namespace

void register_synthetic(py::module_& module) {
  module.def("make_synthetic_file", &make, py::arg("metadata"), py::arg("tensors"),
             "Makes a ModelFile of random weights without a file, for benchmarks. Each tensor is "
             "(name, dtype, shape with the contiguous dimension first, mean, standard deviation).");
}

}  // namespace imp::bindings

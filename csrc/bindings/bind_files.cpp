// Model files: metadata as Python values, tensors as a table.
#include "bindings/register.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.h"
#include "files/check_data.h"
#include "files/open_model_file.h"
#include "model/arch/vision/resolve_vision.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// Strings in arrays become bytes, since a token may be any bytes. A single string becomes str, or bytes if it is not
// UTF-8: a str with surrogates would pass every check of its type, and fail where it is sent.
struct ToPython {
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(std::uint64_t value) const { return py::int_(value); }
  py::object operator()(std::int64_t value) const { return py::int_(value); }
  py::object operator()(double value) const { return py::float_(value); }
  py::object operator()(bool value) const { return py::bool_(value); }
  py::object operator()(const std::string& text) const {
    PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
    if (decoded) return py::reinterpret_steal<py::object>(decoded);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw py::error_already_set();
    PyErr_Clear();
    return py::bytes(text);
  }
  py::object operator()(const NumericArray& array) const {
    const std::string_view name = value_type_name(array.type);  // u8, i32, f64 ...
    const std::string format = array.type == ValueType::BOOL   ? "?"
                               : array.type == ValueType::NONE ? "f8"
                                                               : name[0] + std::to_string(value_type_bytes(array.type));
    return py::array(py::dtype(format), array.size(), array.bytes.data());
  }
  py::object operator()(const StringArray& strings) const {
    py::list list(strings.size());
    for (std::size_t i = 0; i < strings.size(); ++i) list[i] = py::bytes(strings[i].data(), strings[i].size());
    return list;
  }
};

py::dict metadata_dict(const Metadata& metadata) {
  py::dict dict;
  for (const auto& [key, value] : metadata.entries()) dict[py::str(key)] = std::visit(ToPython{}, value.value);
  return dict;
}

py::tuple shape_tuple(const TensorInfo& tensor) {
  py::tuple shape(tensor.n_dims);
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = tensor.dims[i];
  return shape;
}

// One file of a set. It may stay open longer than its ModelFile.
struct OpenFile {
  std::shared_ptr<const File> file;  // null: closed
};

std::vector<OpenFile> open_files(const ModelFile& model) {
  std::vector<OpenFile> files;
  for (const std::shared_ptr<const File>& file : model.files()) files.push_back({file});
  return files;
}

py::bytes read_file(const OpenFile& self, std::uint64_t offset, std::size_t n_bytes) {
  const std::shared_ptr<const File> file = self.file;  // another thread may close it during the read
  if (file == nullptr) throw FieldInvalid("file", "is closed");
  const std::uint64_t left = offset < file->size_bytes() ? file->size_bytes() - offset : 0;
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(n_bytes, left));
  PyObject* const bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (bytes == nullptr) throw py::error_already_set();
  auto owned = py::reinterpret_steal<py::bytes>(bytes);
  const std::span out(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)), size);
  const py::gil_scoped_release unlocked;
  file->read_at(offset, out);
  file->check_unchanged();
  return owned;
}

void register_open_file(py::module_& module) {
  py::class_<OpenFile>(module, "OpenFile",
                       "An open file of a checkpoint. It stays the same file even if its path is replaced.")
      .def("read", &read_file, py::arg("offset"), py::arg("n_bytes"),
           "Reads bytes from `offset` on, fewer at the end of the file. Releases the GIL. Raises "
           "ModelError if the file was changed after it was opened.")
      .def("close", [](OpenFile& self) { self.file.reset(); }, "Closes the descriptor when no other object uses it.");
}

void register_tensor_info(py::module_& module) {
  py::class_<TensorInfo>(module, "TensorInfo", "One tensor of a model file.")
      .def_readonly("name", &TensorInfo::name)
      .def_property_readonly("dtype", [](const TensorInfo& tensor) { return std::string(traits(tensor.dtype).name); })
      .def_property_readonly("shape", &shape_tuple, "Dimensions, the contiguous one first.")
      .def_readonly("shard", &TensorInfo::shard, "Index of its file in the set, from 0.")
      .def_readonly("file_offset", &TensorInfo::file_offset, "Offset of its first byte in its file.")
      .def_readonly("n_bytes", &TensorInfo::n_bytes)
      .def_property_readonly("n_elements", &TensorInfo::n_elements);
}

}  // namespace

void register_files(py::module_& module) {
  register_tensor_info(module);
  register_open_file(module);
  py::class_<ModelFile, py::smart_holder>(module, "ModelFile",
                                          "An open checkpoint with checked metadata. Its data stays in the file.")
      .def_property_readonly("path",
                             [](const ModelFile& file) {
                               return py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefaultAndSize(
                                   file.path().data(), static_cast<Py_ssize_t>(file.path().size())));
                             })
      .def_property_readonly("format", [](const ModelFile& file) { return std::string(file.format()); })
      .def_property_readonly(
          "metadata", [](const ModelFile& file) { return metadata_dict(file.metadata()); },
          "Key-values as a new dict. Arrays of numbers are NumPy arrays, arrays of strings are lists of bytes. A "
          "string that is not UTF-8 is bytes.")
      .def_property_readonly(
          "tensors",
          [](const ModelFile& file) { return std::vector<TensorInfo>(file.tensors().begin(), file.tensors().end()); },
          "A list of TensorInfo in file order.")
      .def_property_readonly("has_vision", &has_vision,
                             "Whether a model directory has a vision tower that imp runs beside its decoder.")
      .def_property_readonly("files", &open_files, "A list of OpenFile, ordered by name.")
      .def_property_readonly("warnings", &ModelFile::warnings, "Oddities of the file that are not errors.")
      .def(
          "check", [](const ModelFile& file, bool values) { check_data(file, values ? Scan::VALUES : Scan::BYTES); },
          py::kw_only(), py::arg("values") = false, py::call_guard<py::gil_scoped_release>(),
          "Reads all data. With `values`, raises ModelError if a weight is NaN or infinite.");
  module.def(
      "open_model_file", [](const std::filesystem::path& path) { return open_model_file(path.string()); },
      py::arg("path"), py::call_guard<py::gil_scoped_release>(),
      "Opens a checkpoint. Its content determines its format. Raises ModelError.");
}

}  // namespace imp::bindings

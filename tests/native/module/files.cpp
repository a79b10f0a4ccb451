// Dtypes, conversions, single reads, typed getters and faulty reads, for the tests.
#include "native/module/files.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <stdexcept>

#include "base/printable.h"
#include "base/utf8.h"
#include "files/gguf.h"
#include "files/open_model_file.h"
#include "tensor/half.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

const DTypeTraits& traits_named(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) throw py::value_error("dtype '" + name + "', known are " + dtype_names());
  return traits(*dtype);
}

py::list dtype_table() {
  py::list rows;
  for (const DTypeTraits& row : all_dtypes()) {
    rows.append(py::dict(py::arg("name") = std::string(row.name), py::arg("block_elements") = row.block_elements,
                         py::arg("block_bytes") = row.block_bytes));
  }
  return rows;
}

py::array_t<float> dequantize(const std::string& dtype, std::string_view blocks) {
  const DTypeTraits& row = traits_named(dtype);
  const auto n_bytes = static_cast<std::int64_t>(blocks.size());
  if (n_bytes % row.block_bytes != 0) throw py::value_error("bytes do not fill blocks");
  py::array_t<float> out(n_bytes / row.block_bytes * row.block_elements);
  row.dequantize(reinterpret_cast<const std::byte*>(blocks.data()), out.mutable_data(), n_bytes / row.block_bytes);
  return out;
}

py::bytes read_tensor(const ModelFile& model, const std::string& name, std::uint64_t offset,
                      std::optional<std::uint64_t> n_bytes) {
  const TensorInfo* tensor = model.find(name);
  if (!tensor) throw py::key_error(name);
  std::string out(n_bytes.value_or(tensor->n_bytes - offset), '\0');
  model.read(*tensor, offset, std::as_writable_bytes(std::span(out)));
  return out;
}

template <class Out, class In, Out (*convert)(In) noexcept>
py::array_t<Out> converted(const py::array_t<In, py::array::c_style>& values) {
  py::array_t<Out> out(values.size());
  std::transform(values.data(), values.data() + values.size(), out.mutable_data(), convert);
  return out;
}

// A file whose nth read (from 1; 0: each) fails, is interrupted once, or returns one byte.
class FaultyReads {
 public:
  FaultyReads(std::string action, std::int64_t nth) : action_(std::move(action)), nth_(nth) {
    if (action_ != "eio" && action_ != "eintr" && action_ != "short" && action_ != "end" && action_ != "none") {
      throw py::value_error("action '" + action_ + "'");
    }
  }
  std::int64_t n_reads() const { return n_reads_; }
  std::int64_t read(int fd, void* out, std::size_t n_bytes, std::uint64_t offset) {
    ++n_reads_;
    const bool hit = nth_ == 0 || n_reads_ == nth_;
    if (hit && action_ == "eio") return fail(EIO);
    if (hit && action_ == "end") return 0;
    if (hit && action_ == "eintr" && offset != interrupted_at_) {
      interrupted_at_ = offset;
      return fail(EINTR);
    }
    return ::pread(fd, out, hit && action_ == "short" ? 1 : n_bytes, static_cast<off_t>(offset));
  }

 private:
  static std::int64_t fail(int error) {
    errno = error;
    return -1;
  }
  std::string action_;
  std::int64_t nth_;
  std::int64_t n_reads_ = 0;
  std::uint64_t interrupted_at_ = ~std::uint64_t{0};
};

PreadFunction pread_through(std::shared_ptr<FaultyReads> faults) {
  if (!faults) return {};
  return [faults = std::move(faults)](int fd, void* out, std::size_t n_bytes, std::uint64_t offset) {
    return faults->read(fd, out, n_bytes, offset);
  };
}

// Calls a typed getter by the name of its type.
py::object typed_value(const ModelFile& model, const std::string& kind, const std::string& key) {
  const Metadata& metadata = model.metadata();
  if (kind == "u8") return py::cast(metadata.integer<std::uint8_t>(key));
  if (kind == "i32") return py::cast(metadata.integer<std::int32_t>(key));
  if (kind == "u64") return py::cast(metadata.integer<std::uint64_t>(key));
  if (kind == "i64") return py::cast(metadata.integer<std::int64_t>(key));
  if (kind == "number") return py::cast(metadata.number(key));
  if (kind == "boolean") return py::cast(metadata.boolean(key));
  if (kind == "string") return py::bytes(std::string(metadata.string(key)));
  if (kind == "strings") return py::cast(metadata.strings(key).size());
  if (kind == "i32s") return py::cast(metadata.integers<std::int32_t>(key));
  if (kind == "numbers") return py::cast(metadata.numbers(key));
  if (kind == "i32?") return py::cast(metadata.find_integer<std::int32_t>(key));
  if (kind == "number?") return py::cast(metadata.find_number(key));
  throw py::value_error("kind '" + kind + "'");
}

}  // namespace

void register_files_testing(py::module_& module) {
  module.def("dtypes", &dtype_table);
  module.def("dequantize", &dequantize, py::arg("dtype"), py::arg("blocks"));
  module.def("row_bytes", [](const std::string& dtype, std::int64_t n_elements) {
    return row_bytes(traits_named(dtype).dtype, n_elements);
  });
  module.def("f16_to_f32", &converted<float, std::uint16_t, f16_to_f32>);
  module.def("f32_to_f16", &converted<std::uint16_t, float, f32_to_f16>);
  module.def("bf16_to_f32", &converted<float, std::uint16_t, bf16_to_f32>);
  module.def("f32_to_bf16", &converted<std::uint16_t, float, f32_to_bf16>);
  module.def("is_utf8", [](std::string_view text) { return is_utf8(text); });
  module.def("printable", [](std::string_view text, std::size_t max) { return printable(text, max); });

  py::class_<FaultyReads, std::shared_ptr<FaultyReads>>(module, "FaultyReads")
      .def(py::init<std::string, std::int64_t>(), py::arg("action"), py::arg("nth"))
      .def_property_readonly("n_reads", &FaultyReads::n_reads);
  module.def(
      "open_gguf",
      [](const std::filesystem::path& path, std::shared_ptr<FaultyReads> faults) {
        return open_gguf(path.string(), pread_through(std::move(faults)));
      },
      py::arg("path"), py::arg("faults") = nullptr);
  module.def(
      "open_model_file",
      [](const std::filesystem::path& path, std::shared_ptr<FaultyReads> faults) {
        return open_model_file(path.string(), pread_through(std::move(faults)));
      },
      py::arg("path"), py::arg("faults") = nullptr);
  module.def("read_tensor", &read_tensor, py::arg("model"), py::arg("name"), py::arg("offset") = 0,
             py::arg("n_bytes") = py::none());
  module.def("find_tensor",
             [](const ModelFile& model, const std::string& name) { return model.find(name) != nullptr; });
  module.def("typed_value", &typed_value);
}

}  // namespace imp::bindings

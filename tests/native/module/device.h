// A backend for tests: its ops take and return arrays.
#pragma once

#include <pybind11/numpy.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "native/module/backend_memory.h"

namespace imp::bindings {

using Floats = pybind11::array_t<float, pybind11::array::c_style | pybind11::array::forcecast>;
using Ints = pybind11::array_t<std::int32_t, pybind11::array::c_style | pybind11::array::forcecast>;

class TestingDevice {
 public:
  TestingDevice(const std::string& kind, const std::string& isa, int n_threads,
                const std::vector<std::string>& cublaslt)
      : backend_(make_backend({.kind = kind,
                               .isa = isa,
                               .n_threads = n_threads,
                               .cpus = {},
                               .memory = {},
                               .tuning = {},
                               .cublaslt = cublaslt})) {}

  Backend& backend() { return *backend_; }

  // Rows in the backend's memory. Their padding holds NaN, which no op may read into its result.
  Rows empty_rows(int n_rows, int width) {
    const Rows rows = backend_->make_rows(n_rows, width);
    const std::vector<std::uint32_t> nan(n_floats(rows), kUnwritten);
    write_device(*backend_, rows.data, nan.data(), nan.size() * sizeof(float));
    return rows;
  }

  Rows to_rows(const Floats& values) {
    if (values.ndim() != 2) throw std::invalid_argument("rows have two dimensions");
    const Rows rows = empty_rows(static_cast<int>(values.shape(0)), static_cast<int>(values.shape(1)));
    for (int i = 0; i < rows.n_rows; ++i) {
      write_device(*backend_, rows.data + i * rows.stride, values.data(i, 0), static_cast<std::size_t>(rows.width) * 4);
    }
    return rows;
  }

  // Throws if the op wrote into the padding.
  Floats to_array(Rows rows) {
    std::vector<std::uint32_t> words(n_floats(rows));
    read_device(*backend_, words.data(), rows.data, words.size() * sizeof(float));
    Floats values({rows.n_rows, rows.width});
    for (int i = 0; i < rows.n_rows; ++i) {
      const std::uint32_t* const row = words.data() + i * rows.stride;
      std::memcpy(values.mutable_data(i, 0), row, static_cast<std::size_t>(rows.width) * sizeof(float));
      for (std::ptrdiff_t j = rows.width; j < rows.stride; ++j) {
        if (row[j] != kUnwritten) throw std::runtime_error("an op wrote beyond its row");
      }
    }
    return values;
  }

 private:
  static constexpr std::uint32_t kUnwritten = 0xFFFFFFFF;  // a NaN
  static std::size_t n_floats(Rows rows) {
    return static_cast<std::size_t>(rows.n_rows) * static_cast<std::size_t>(rows.stride);
  }

  std::unique_ptr<Backend> backend_;
};

inline std::span<const std::int32_t> span_of(const Ints& values) {
  return {values.data(), static_cast<std::size_t>(values.size())};
}

}  // namespace imp::bindings

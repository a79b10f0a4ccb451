// A matrix of activations for the backend's ops.
#pragma once

#include <cstddef>

namespace imp {

// float32, row-major, owned by the backend's workspace. `data` is a device address: only the backend reads it.
struct Rows {
  float* data = nullptr;
  int n_rows = 0;
  int width = 0;
  std::ptrdiff_t stride = 0;  // floats from one row to the next, at least width
};

// Some rows of a matrix that follow each other, at least one.
struct RowRun {
  int first = 0;
  int n = 1;
};

}  // namespace imp

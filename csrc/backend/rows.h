// A matrix of activations as the backend's ops see it.
#pragma once

#include <cstddef>

namespace imp {

// float32, row-major, owned by the backend's workspace. `data` is an address on the device: only the backend reads it.
struct Rows {
  float* data = nullptr;
  int n_rows = 0;
  int width = 0;
  std::ptrdiff_t stride = 0;  // floats from one row to the next, at least width
};

}  // namespace imp

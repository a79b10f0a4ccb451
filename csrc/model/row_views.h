// Parts of a matrix of activations.
#pragma once

#include <cstddef>

#include "backend/rows.h"

namespace imp {

inline Rows first(Rows rows, std::size_t n) noexcept {
  rows.n_rows = static_cast<int>(n);
  return rows;
}

inline Rows columns(Rows rows, int first, int width) noexcept {
  rows.data += first;
  rows.width = width;
  return rows;
}

}  // namespace imp

// Parts of a matrix of activations, and its size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/rows.h"
#include "base/ceil_div.h"

namespace imp {

inline Rows first(Rows rows, std::size_t n) noexcept {
  rows.n_rows = static_cast<int>(n);
  return rows;
}

inline Rows rows_from(Rows rows, int first, std::size_t n) noexcept {
  rows.data += first * rows.stride;
  rows.n_rows = static_cast<int>(n);
  return rows;
}

inline Rows columns(Rows rows, int first, int width) noexcept {
  rows.data += first;
  rows.width = width;
  return rows;
}

// Bytes of a matrix that a backend makes: its rows are aligned to 64 bytes.
inline std::uint64_t bytes_of_rows(std::int64_t n_rows, std::int64_t width) noexcept {
  return static_cast<std::uint64_t>(n_rows * round_up(width, std::int64_t{16})) * sizeof(float);
}

}  // namespace imp

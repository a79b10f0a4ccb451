// How the CPU backend divides the rows of an op among its threads.
#pragma once

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/ceil_div.h"

namespace imp::cpu {

// Least number of elements worth a task.
inline constexpr int kTaskElements = 4096;

inline float* row_of(Rows x, int row) {
  return x.data + row * x.stride;
}

template <class Body>
void CpuBackend::for_rows(int n_rows, int width, const Body& body) {
  const int per_task = std::max(1, kTaskElements / std::max(1, width));
  threads_.run(ceil_div(n_rows, per_task), [&](int task, int) {
    const int end = std::min(n_rows, (task + 1) * per_task);
    for (int row = task * per_task; row < end; ++row) body(row);
  });
}

template <class Body>
void CpuBackend::for_pieces(int n_rows, int width, const Body& body) {
  const int pieces = ceil_div(width, kTaskElements);
  if (pieces <= 1) return for_rows(n_rows, width, [&](int row) { body(row, 0, width); });
  threads_.run(n_rows * pieces, [&](int task, int) {
    const int first = task % pieces * kTaskElements;
    body(task / pieces, first, std::min(kTaskElements, width - first));
  });
}

}  // namespace imp::cpu

// Softmax weights of experts, and weighted sums of their outputs.
#pragma once

#include "backend/cpu/lanes/math.h"
#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {
namespace {

// In place. A NaN makes all of them NaN.
void softmax(float* x, int n) {
  float greatest = x[0];
  for (int i = 1; i < n; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  Lanes total = zero();
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(x + i, exp(load_up_to(x + i, n - i) - broadcast(greatest)), n - i);
    total = total + load_up_to(x + i, n - i);  // 0 beyond n
  }
  const Lanes divisor = broadcast(sum(total));
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, load_up_to(x + i, n - i) / divisor, n - i);
}

void mix(const WeightedRows& rows, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    Lanes total = zero();
    for (int r = 0; r < rows.n_rows; ++r) {
      const Lanes part = load_up_to(rows.first + rows.grouped_rows[r] * rows.stride + i, n - i);
      total = fma(part, broadcast(rows.weights[r]), total);
    }
    store_up_to(out + i, total, n - i);
  }
}

}  // namespace
}  // namespace imp::cpu

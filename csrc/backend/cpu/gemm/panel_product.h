// The product of float panels with float activations as data, and the instruction-set dependent part of kernels that
// dequantize on the way.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

// A run of k over up to a few panels of 16 weight rows, and m rows of activations.
struct PanelProduct {
  const float* panels;  // [n_panels][k][16], one after the other
  std::int64_t k;
  const std::byte* x;         // m rows of at least k floats
  std::ptrdiff_t x_stride;    // bytes
  float* out;                 // [m][columns]
  std::ptrdiff_t out_stride;  // floats
  int m;
  int columns;  // outputs wanted: the last panel may be wider than that
  bool resume;  // sums go on from what out holds, else from +0
};

struct PanelOps {
  int n_panels;  // how many multiply takes at once, at most kMaxPanels
  // [16][k] rows, row_stride floats apart, to [k][16].
  void (*interleave)(const float* rows, std::ptrdiff_t row_stride, std::int64_t k, float* panel);
  void (*multiply)(const PanelProduct& product);  // columns at most 16 · n_panels
};

inline constexpr int kMaxPanels = 2;

}  // namespace imp::cpu

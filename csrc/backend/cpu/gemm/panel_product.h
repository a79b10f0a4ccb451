// The product of float panels with float activations: its arguments, and the inner loops per instruction set of the
// kernels that dequantize weights into panels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

// A range of k over several panels of 16 weight rows, and m rows of activations.
struct PanelProduct {
  const float* panels;  // [n_panels][k][16]
  std::int64_t k;
  const std::byte* x;         // m rows of at least k floats
  std::ptrdiff_t x_stride;    // bytes
  float* out;                 // [m][columns]
  std::ptrdiff_t out_stride;  // floats
  int m;
  int columns;  // outputs to write; the last panel may be wider
  bool resume;  // add to `out`; otherwise start at +0
};

struct PanelOps {
  int n_panels;  // panels per multiply, at most kMaxPanels
  // Transposes [16][k] rows, row_stride floats apart, to [k][16].
  void (*interleave)(const float* rows, std::ptrdiff_t row_stride, std::int64_t k, float* panel);
  void (*multiply)(const PanelProduct& product);  // columns at most 16 · n_panels
};

inline constexpr int kMaxPanels = 2;

// The scratch of a product of many rows, in which tiles of rows read what is decoded once: a piece of some panels,
// which stays in the L1 cache beside a tile's rows, and the same piece of some rows, side by side.
struct DecodedPieces {
  static constexpr std::int64_t kElements = 192;
  static constexpr int kRows = 64;

  float panels[kMaxPanels][kElements][16];
  float rows[kRows][kElements];
};

}  // namespace imp::cpu

// Products of float weights in panels of 16 rows: each output is a lane, its sum one fma per element with k ascending
// from +0. For the instruction set that the including file is compiled for.
#include "backend/cpu/gemm/panel_product.h"
#include "backend/cpu/lanes.h"
#include "backend/gemm_args.h"

namespace imp::cpu {
namespace {

// Elements of a panel as they are stored.
struct F32 {
  float value;
};
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

inline Lanes load_row(const F32* from) {
  return load(&from->value);
}
inline Lanes load_row(const F16* from) {
  return load_f16(&from->bits);
}
inline Lanes load_row(const BF16* from) {
  return load_bf16(&from->bits);
}

// The largest tile in registers: rows of activations by panels. An fma takes about four cycles and up to two start in
// each, so some ten sums must be under way; two panels share each broadcast. More rows than 8 would fit 32 registers,
// but rows that are a multiple of 4 KiB apart then push each other out of an 8-way first-level cache.
#if defined(__AVX512F__)
constexpr int kTileRows = 8, kTilePanels = 2;
#elif defined(__AVX2__)
constexpr int kTileRows = 6, kTilePanels = 1;
#else
constexpr int kTileRows = 2, kTilePanels = 1;
#endif
// A single row has only its panels to keep several sums under way, and memory to wait for.
constexpr int kRowPanels = 4;

template <class Element>
struct Panels {
  const Element* first;
  std::ptrdiff_t stride;  // elements from one panel to the next
};

// T rows from `row` on by P panels, in registers for all of the product's k.
template <int T, int P, class Element>
void multiply_tile(const Panels<Element>& panels, const PanelProduct& product, int row) {
  Lanes sums[T][P];
  const float* x[T];
  float* const out = product.out + row * product.out_stride;
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const float*>(product.x + (row + t) * product.x_stride);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      sums[t][p] =
          product.resume ? load_up_to(out + t * product.out_stride + p * kLanes, product.columns - p * kLanes) : zero();
    }
  }
  for (std::int64_t i = 0; i < product.k; ++i) {
    Lanes weights[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) weights[p] = load_row(panels.first + p * panels.stride + i * kLanes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const Lanes activation = broadcast(x[t][i]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[t][p] = fma(weights[p], activation, sums[t][p]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      store_up_to(out + t * product.out_stride + p * kLanes, sums[t][p], product.columns - p * kLanes);
    }
  }
}

// Calls the tile of `rows` rows, 1 to T.
template <int T, int P, class Element>
void dispatch_tile(int rows, const Panels<Element>& panels, const PanelProduct& product, int row) {
  if constexpr (T > 1) {
    if (rows < T) return dispatch_tile<T - 1, P>(rows, panels, product, row);
  }
  multiply_tile<T, P>(panels, product, row);
}

// All rows, in the fewest tiles, as even as can be: an uneven rest would run at a fraction of the speed.
template <int P, class Element>
void multiply_rows(const Panels<Element>& panels, const PanelProduct& product) {
  const int n_tiles = (product.m + kTileRows - 1) / kTileRows;
  for (int tile = 0, row = 0; tile < n_tiles; ++tile) {
    const int rows = (product.m - row) / (n_tiles - tile);
    dispatch_tile<kTileRows, P>(rows, panels, product, row);
    row += rows;
  }
}

// A few panels of float32, as kernels that dequantize call it.
inline void multiply_panels(const PanelProduct& product) {
  const Panels<F32> panels{reinterpret_cast<const F32*>(product.panels), product.k * kLanes};
  if constexpr (kTilePanels > 1) {
    if (product.columns > kLanes) return multiply_rows<kTilePanels>(panels, product);
  }
  multiply_rows<1>(panels, product);
}

// A kernel over a packed weight of Elements.
template <class Element>
void multiply_packed(const GemmArgs& args) {
  // With several tiles of rows a panel is read again for each: runs of k keep it in the second-level cache.
  constexpr std::int64_t kRun = 1024;
  const std::int64_t run = args.m <= kTileRows ? args.k : kRun;
  for (std::int64_t n = args.n_begin; n < args.n_end;) {
    const std::int64_t left = args.n_end - n;
    const int wide = args.m == 1 ? kRowPanels : kTilePanels;
    const int n_panels = left > (wide - 1) * kLanes ? wide : 1;
    const int columns = static_cast<int>(left < n_panels * kLanes ? left : n_panels * kLanes);
    const Element* const weight = reinterpret_cast<const Element*>(args.weight) + n * args.k;
    for (std::int64_t k = 0; k < args.k; k += run) {
      const Panels<Element> panels{weight + k * kLanes, args.k * kLanes};
      const PanelProduct product{nullptr,
                                 args.k - k < run ? args.k - k : run,
                                 args.activations + k * static_cast<std::int64_t>(sizeof(float)),
                                 args.activation_stride,
                                 args.out + n,
                                 args.out_stride,
                                 args.m,
                                 columns,
                                 k > 0};
      if (n_panels == 1) {
        multiply_rows<1>(panels, product);
      } else if (args.m == 1) {
        multiply_tile<1, kRowPanels>(panels, product, 0);
      } else {
        multiply_rows<kTilePanels>(panels, product);
      }
    }
    n += n_panels * kLanes;
  }
}

}  // namespace
}  // namespace imp::cpu

// Products of float weights in panels of 16 rows, a register-blocked microkernel as in BLIS ("Anatomy of
// High-Performance Matrix Multiplication"). It differs in that k is never split: each output is a lane whose sum starts
// at +0 with k ascending, so every tile size gives the same bits. F32, F16 and F8_E4M3 (a code times its scale, rounded
// to float32) add one fma per element. BF16, with activations rounded to bfloat16, adds the odd product of each pair,
// then the even one, as AVX-512 BF16 does.
#include "backend/cpu/gemm/panel_product.h"
#include "backend/cpu/gemm/quantized/panel_blocks.h"
#include "backend/cpu/lanes/lanes_pairs.h"
#include "backend/gemm_args.h"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

// The elements of a panel that one step reads of each row, and how it multiplies them. Where many rows are faster with
// weights that are decoded once for all of them, kIsDecoded is true.
struct F32 {
  using Activation = float;
  static constexpr std::int64_t kElements = 1;
  static constexpr bool kIsDecoded = false;
  float value;
};
struct F16 {
  using Activation = float;
  static constexpr std::int64_t kElements = 1;
#if defined(__AVX512F__)
  static constexpr bool kIsDecoded = true;
#else
  static constexpr bool kIsDecoded = false;
#endif
  std::uint16_t bits;
};
// A byte of a PanelBlockF8_E4M3.
struct F8 {
  using Activation = float;
  static constexpr std::int64_t kElements = 1;
  static constexpr bool kIsDecoded = false;
  std::uint8_t byte;
};
struct PairBF16 {
  using Activation = std::uint32_t;
  static constexpr std::int64_t kElements = 2;
#if defined(__AVX2__) && !defined(__AVX512BF16__)
  static constexpr bool kIsDecoded = true;
#else
  static constexpr bool kIsDecoded = false;
#endif
  std::uint32_t bits;  // the even element in the low half
};
// From so many rows on.
constexpr int kDecodedRows = 32;

inline Lanes load_row(const F32* from) {
  return load(&from->value);
}
inline Lanes load_row(const F16* from) {
  return load_f16(&from->bits);
}
inline Lanes splat(float activation) {
  return broadcast(activation);
}
inline Lanes add_product(Lanes sum, Lanes weight, Lanes activation) {
  return fma(weight, activation, sum);
}

inline Pairs load_row(const PairBF16* from) {
  return load_pairs(&from->bits);
}
// The last element of a row of odd length.
inline Pairs load_last(const PairBF16* from) {
  return pairs_of(load_u16(reinterpret_cast<const std::uint16_t*>(from)));
}
inline Pairs splat(std::uint32_t activation) {
  return broadcast_pair(activation);
}

// The largest register tile: rows of activations by panels. An fma takes about four cycles and two start per cycle, so
// about ten sums must be in flight; two panels share each broadcast. 32 registers could hold more than 8 rows, but rows
// that are a multiple of 4 KiB apart evict each other from an 8-way L1 cache.
#if defined(__AVX512F__)
constexpr int kTileRows = 8, kTilePanels = 2;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kTileRows = 6, kTilePanels = 1;
#else
constexpr int kTileRows = 2, kTilePanels = 1;
#endif
static_assert(kTilePanels <= kMaxPanels);
// A single row keeps several sums in flight only through several panels, and waits for memory.
constexpr int kRowPanels = 4;

// Bfloat16 activations are written one by one and read in pairs.
template <class Activation>
Activation activation_at(const std::byte* row, std::int64_t i) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Activation));
  Activation found;
  __builtin_memcpy(&found, row + i * kBytes, sizeof(Activation));
  return found;
}

template <class Element>
struct Panels {
  const Element* first;
  std::ptrdiff_t stride;  // elements from one panel to the next
};

// Elements in memory of that many rows of k elements.
template <class Element>
constexpr std::int64_t elements_of(std::int64_t n_rows, std::int64_t k) {
  return n_rows * k / Element::kElements;
}
template <>
constexpr std::int64_t elements_of<F8>(std::int64_t n_rows, std::int64_t k) {
  return n_rows * (k / 64) * static_cast<std::int64_t>(sizeof(PanelBlockF8_E4M3)) / kLanes;
}

// Reads P panels side by side, step by step. Call begin_run() before each run of kRun steps.
template <class Element, int P>
struct PanelReader {
  static constexpr std::int64_t kRun = INT64_MAX;
  Panels<Element> panels;

  void begin_run(std::int64_t) {}
  auto read(int p, std::int64_t i) const { return load_row(panels.first + p * panels.stride + i * kLanes); }
};
template <int P>
struct PanelReader<F8, P> {
  static constexpr std::int64_t kRun = 64;
  Panels<F8> panels;
  const PanelBlockF8_E4M3* blocks[P] = {};
  Lanes scales[P] = {};

  void begin_run(std::int64_t i) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      blocks[p] = reinterpret_cast<const PanelBlockF8_E4M3*>(panels.first + p * panels.stride) + i / kRun;
      scales[p] = load(blocks[p]->scales) * broadcast(0x1p8F);  // codes are loaded smaller by this factor
    }
  }
  Lanes read(int p, std::int64_t i) const { return load_e4m3_scaled(blocks[p]->codes[i % kRun]) * scales[p]; }
};

// T rows from `row` on times P panels, with the sums in registers for the whole k.
template <int T, int P, class Element>
void multiply_tile(const Panels<Element>& panels, const PanelProduct& product, int row) {
  Lanes sums[T][P];
  const std::byte* x[T];
  float* const out = product.out + row * product.out_stride;
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    x[t] = product.x + (row + t) * product.x_stride;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      float* const to = out + t * product.out_stride + p * kLanes;
      sums[t][p] = product.resume ? load_up_to(to, product.columns - p * kLanes) : zero();
      prefetch_to_write(to);
    }
  }
  const auto add_all = [&](const auto& weights, std::int64_t i) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const auto activation = splat(activation_at<typename Element::Activation>(x[t], i));
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[t][p] = add_product(sums[t][p], weights[p], activation);
    }
  };
  const std::int64_t n_steps = product.k / Element::kElements;
  PanelReader<Element, P> reader{panels};
  for (std::int64_t i = 0; i < n_steps;) {
    reader.begin_run(i);
    const std::int64_t end = n_steps - i < reader.kRun ? n_steps : i + reader.kRun;
    for (; i < end; ++i) {
      decltype(reader.read(0, i)) weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) weights[p] = reader.read(p, i);
      add_all(weights, i);
    }
  }
  if constexpr (Element::kElements == 2) {
    if (product.k % 2 != 0) {
      Pairs weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) weights[p] = load_last(panels.first + p * panels.stride + n_steps * kLanes);
      add_all(weights, n_steps);
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

// All rows in as few tiles as possible, of nearly equal height: a small last tile would run at a fraction of the speed.
template <int P, class Element>
void multiply_rows(const Panels<Element>& panels, const PanelProduct& product) {
  const int n_tiles = ceil_div(product.m, kTileRows);
  for (int tile = 0, row = 0; tile < n_tiles; ++tile) {
    const int rows = (product.m - row) / (n_tiles - tile);
    dispatch_tile<kTileRows, P>(rows, panels, product, row);
    row += rows;
  }
}

// A few panels of float32, for kernels that dequantize.
inline void multiply_panels(const PanelProduct& product) {
  const Panels<F32> panels{reinterpret_cast<const F32*>(product.panels), product.k * kLanes};
  if constexpr (kTilePanels > 1) {
    if (product.columns > kLanes) return multiply_rows<kTilePanels>(panels, product);
  }
  multiply_rows<1>(panels, product);
}

}  // namespace
}  // namespace imp::cpu

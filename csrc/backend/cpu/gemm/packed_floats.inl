// Kernels over packed weights of floats. Few rows decode weights as they multiply them; for many rows they are decoded
// once, a piece at a time, if that is faster.
#include "backend/cpu/gemm/float_panels.inl"

namespace imp::cpu {
namespace {

// Steps [begin, end) of a panel, of rows of k elements, as floats in the order in which sums take them.
template <class Element>
void decode_panel(const Element* panel, std::int64_t begin, std::int64_t end, std::int64_t /*k*/, float* out) {
  PanelReader<Element, 1> reader{{panel, 0}};
  for (std::int64_t i = begin; i < end;) {
    reader.begin_run(i);
    const std::int64_t run_end = end - i < reader.kRun ? end : i + reader.kRun;
    for (; i < run_end; ++i, out += kLanes) store(out, reader.read(0, i));
  }
}

// The same of a row of activations.
template <class Element>
void decode_row(const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  __builtin_memcpy(out, row + begin * std::int64_t{sizeof(float)},
                   static_cast<std::size_t>(end - begin) * sizeof(float));
}

#if !defined(__AVX512BF16__)
template <>
inline void decode_panel(const PairBF16* panel, std::int64_t begin, std::int64_t end, std::int64_t k, float* out) {
  for (std::int64_t i = begin; i < end; ++i, out += 2 * kLanes) {
    const PairBF16* const from = panel + i * kLanes;
    const Pairs pairs = 2 * i + 1 < k ? load_row(from) : load_last(from);
    store(out, pairs.odd);
    store(out + kLanes, pairs.even);
  }
}

template <>
inline void decode_row<PairBF16>(const std::byte* row, std::int64_t begin, std::int64_t end, float* out) {
  for (std::int64_t i = begin; i < end; ++i) {
    const auto pair = activation_at<std::uint32_t>(row, i);
    *out++ = __builtin_bit_cast(float, pair & 0xFFFF0000U);
    *out++ = __builtin_bit_cast(float, pair << 16);
  }
}
#endif

// Steps [begin, end) of decoded rows from `row` on, times all panels.
template <class Element>
void multiply_decoded_rows(const GemmArgs& args, DecodedPieces& piece, std::int64_t begin, std::int64_t end, int row,
                           int n_rows) {
  const Panels<F32> panels{reinterpret_cast<const F32*>(piece.panels), DecodedPieces::kElements * kLanes};
  const auto* const weight = reinterpret_cast<const Element*>(args.weight);
  for (std::int64_t n = args.n_begin; n < args.n_end; n += kTilePanels * kLanes) {
    const std::int64_t left = args.n_end - n;
    const int n_panels = left > (kTilePanels - 1) * kLanes ? kTilePanels : 1;
    for (int p = 0; p < n_panels; ++p) {
      decode_panel(weight + elements_of<Element>(n + p * kLanes, args.k), begin, end, args.k, piece.panels[p][0]);
    }
    const PanelProduct product{nullptr,
                               (end - begin) * Element::kElements,
                               reinterpret_cast<const std::byte*>(piece.rows),
                               sizeof piece.rows[0],
                               args.out + row * args.out_stride + (n - args.n_begin),
                               args.out_stride,
                               n_rows,
                               static_cast<int>(left < n_panels * kLanes ? left : n_panels * kLanes),
                               begin > 0};
    n_panels == 1 ? multiply_rows<1>(panels, product) : multiply_rows<kTilePanels>(panels, product);
  }
}

// Many rows: each piece of a panel is decoded once for several tiles. A pair is two floats, the odd one first.
template <class Element>
void multiply_decoded(const GemmArgs& args) {
  constexpr std::int64_t kSteps = DecodedPieces::kElements / Element::kElements;
  auto& piece = *reinterpret_cast<DecodedPieces*>(args.scratch);
  const std::int64_t n_steps = ceil_div(args.k, Element::kElements);
  const int n_parts = ceil_div(args.m, DecodedPieces::kRows);
  for (std::int64_t begin = 0; begin < n_steps; begin += kSteps) {
    const std::int64_t end = n_steps - begin < kSteps ? n_steps : begin + kSteps;
    for (int part = 0, row = 0; part < n_parts; ++part) {
      const int n_rows = (args.m - row) / (n_parts - part);
      for (int r = 0; r < n_rows; ++r) {
        decode_row<Element>(args.activations + (row + r) * args.activation_stride, begin, end, piece.rows[r]);
      }
      multiply_decoded_rows<Element>(args, piece, begin, end, row, n_rows);
      row += n_rows;
    }
  }
}

// All rows, with weights that are decoded as they are multiplied.
template <class Element>
void multiply_block(const GemmArgs& args) {
  // Several row tiles read each panel again. A loop over ranges of k keeps it in the L2 cache.
  constexpr std::int64_t kRun = 1024;
  constexpr auto kStep = static_cast<std::int64_t>(sizeof(typename Element::Activation));
  const std::int64_t run = args.m <= kTileRows ? args.k : kRun;
  for (std::int64_t n = args.n_begin; n < args.n_end;) {
    const std::int64_t left = args.n_end - n;
    const int wide = args.m == 1 ? kRowPanels : kTilePanels;
    const int n_panels = left > (wide - 1) * kLanes ? wide : 1;
    const int columns = static_cast<int>(left < n_panels * kLanes ? left : n_panels * kLanes);
    const Element* const weight = reinterpret_cast<const Element*>(args.weight) + elements_of<Element>(n, args.k);
    for (std::int64_t k = 0; k < args.k; k += run) {
      const Panels<Element> panels{weight + elements_of<Element>(kLanes, k), elements_of<Element>(kLanes, args.k)};
      const PanelProduct product{nullptr,
                                 args.k - k < run ? args.k - k : run,
                                 args.activations + k / Element::kElements * kStep,
                                 args.activation_stride,
                                 args.out + (n - args.n_begin),
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

// A kernel on a packed weight of Elements.
template <class Element>
void multiply_packed(const GemmArgs& args) {
  if constexpr (Element::kIsDecoded) {
    if (args.m >= kDecodedRows) return multiply_decoded<Element>(args);
  }
  // Every panel reads all rows, so rows are taken in blocks that stay in the L2 cache. A block of fewer rows than
  // kLeastRows would wait for weights, which come from memory for each block.
  constexpr std::int64_t kBlockBytes = 512 << 10, kLeastRows = 128;
  constexpr auto kStep = static_cast<std::int64_t>(sizeof(typename Element::Activation));
  const std::int64_t row_bytes = ceil_div(args.k, Element::kElements) * kStep;
  const std::int64_t most = row_bytes * kLeastRows < kBlockBytes ? kBlockBytes / row_bytes : kLeastRows;
  const auto n_blocks = static_cast<int>(ceil_div(std::int64_t{args.m}, most));
  for (int block = 0, row = 0; block < n_blocks; ++block) {
    GemmArgs part = args;
    part.m = (args.m - row) / (n_blocks - block);
    part.activations += row * args.activation_stride;
    part.out += row * args.out_stride;
    multiply_block<Element>(part);
    row += part.m;
  }
}

}  // namespace
}  // namespace imp::cpu

#define IMP_DEFINE_FLOAT_RUN(name, Element, isa)  \
  void run_##name##_##isa(const GemmArgs& args) { \
    multiply_packed<Element>(args);               \
  }

// Quantized weights times quantized activations (W4A8 and similar) on packed panels with VNNI-style dot products. Each
// output is a lane. Its sum adds one fma per block of 32 elements, k ascending: the exact integer dot product times the
// product of both scales. If the type has minima, a second fma adds the minimum times the activations' sum. If halves
// of a block have their own scales, one fma adds the sum of both.
#include "backend/cpu/gemm/quantized/weights.inl"
#include "backend/gemm_args.h"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

// Which blocks of a panel prefetch: after `wait` blocks, every `period`-th block prefetches the data `ahead` bytes
// further. A negative `wait` disables prefetching.
struct Prefetching {
  std::ptrdiff_t ahead = 0;
  int wait = -1;
  int period = 1;
};

// Some rows of activations times one or more panels.
struct Tile {
  const std::byte* weights;    // first panel
  std::ptrdiff_t panel_bytes;  // from one panel to the next
  std::int64_t n_blocks;
  const std::byte* activations;      // first row of the tile
  std::ptrdiff_t activation_stride;  // bytes
  float* out;                        // first row of the tile, first column of the first panel
  std::ptrdiff_t out_stride;         // floats
  int columns;                       // 16 per panel, or fewer in the last one
  Prefetching prefetching;
};

// More than the product of one core's memory latency and bandwidth.
constexpr std::ptrdiff_t kAheadBytes = 16 << 10;

// Prefetches the part of the block `ahead` bytes further that corresponds to a group, to the L2 cache: the L1 cache
// tracks too few misses for the full bandwidth.
template <class Block, int n_groups, int group>
[[gnu::always_inline]] inline void prefetch(const Block& block, std::ptrdiff_t ahead) {
  constexpr std::size_t begin = sizeof(Block) * group / n_groups, end = sizeof(Block) * (group + 1) / n_groups;
  const char* const from = reinterpret_cast<const char*>(&block) + ahead;
#pragma GCC unroll 16
  for (std::size_t line = begin / 64 * 64; line < end; line += 64) __builtin_prefetch(from + line, 0, 2);
}

// For tile i of n_tiles, which all pass over panels of that many bytes. If only the first tile read panels from memory,
// memory would be idle during the others. So together they prefetch the next panels.
inline Prefetching prefetching_of(int i, int n_tiles, std::ptrdiff_t bytes) {
  return {n_tiles == 1 ? kAheadBytes : bytes, i, n_tiles};
}

// A block of each panel of a tile, and a value for each pair of a panel and a row. Loops over both are unrolled, so
// values stay in registers.
template <class Weights, int P>
using Blocks = const typename Weights::Block* [P];

// Exact sums of products of T rows with a part of a group of P panels.
template <class Weights, int group, Part part, int T, int P>
[[gnu::always_inline]] inline void multiply_codes(const Blocks<Weights, P>& blocks,
                                                  const ActivationBlock* const (&x)[T], Lanes (&products)[P][T])
  requires(!kByPairs<T>)
{
  Dots<Weights::kRange, part, P> dots[P][T];
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) dots[p][t].start(*x[t]);
  }
#pragma GCC unroll 8
  for (int j = part == Part::last_half ? 4 : 0; j < (part == Part::first_half ? 4 : 8); ++j) {
    Operand<Weights::kRange> operands[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) operands[p] = Operand<Weights::kRange>(Weights::template codes<group>(*blocks[p], j));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) dots[p][t].add(operands[p], *x[t], j);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) products[p][t] = from_int(dots[p][t].value(*x[t]));
  }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The same, by pairs of rows. An odd last row is paired with itself.
template <class Weights, int group, Part part, int T, int P>
[[gnu::always_inline]] inline void multiply_codes(const Blocks<Weights, P>& blocks,
                                                  const ActivationBlock* const (&x)[T], Lanes (&products)[P][T])
  requires(kByPairs<T>)
{
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    PairDots<Weights::kRange, part> dots[(T + 1) / 2];
#pragma GCC unroll 4
    for (int t = 0; t < T; t += 2) dots[t / 2].start(*x[t], *x[t + 1 < T ? t + 1 : t]);
#pragma GCC unroll 4
    for (int j = part == Part::last_half ? 4 : 0; j < (part == Part::first_half ? 4 : 8); j += 2) {
      const PairOperand weights(Weights::template codes<group>(*blocks[p], j),
                                Weights::template codes<group>(*blocks[p], j + 1));
#pragma GCC unroll 4
      for (int t = 0; t < T; t += 2) dots[t / 2].add(weights, *x[t], *x[t + 1 < T ? t + 1 : t], j);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) products[p][t] = from_int(t % 2 == 0 ? dots[t / 2].first() : dots[t / 2].second());
  }
}
#endif

template <class Weights, int group, int T, int P>
[[gnu::always_inline]] inline void multiply_group(const Blocks<Weights, P>& blocks,
                                                  const ActivationBlock* const (&x)[T], Lanes (&sums)[P][T])
  requires(Weights::kScalePer == ScalePer::group)
{
  Lanes products[P][T];
  multiply_codes<Weights, group, Part::whole>(blocks, x, products);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const Lanes scale = Weights::template scale<group>(*blocks[p]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[p][t] = fma(products[p][t], scale * broadcast(x[t]->scale), sums[p][t]);
    if constexpr (Weights::kHasMin) {
      const Lanes min = Weights::template min<group>(*blocks[p]);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[p][t] = fma(min, broadcast(x[t]->scaled_sum), sums[p][t]);
    }
  }
}

// The sum of a group's halves, multiplied once by the activations' scale.
template <class Weights, int group, int T, int P>
[[gnu::always_inline]] inline void multiply_group(const Blocks<Weights, P>& blocks,
                                                  const ActivationBlock* const (&x)[T], Lanes (&sums)[P][T])
  requires(Weights::kScalePer == ScalePer::half_group)
{
  Lanes totals[P][T], products[P][T];
  multiply_codes<Weights, group, Part::first_half>(blocks, x, totals);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const Lanes first_scale = Weights::template scale<2 * group>(*blocks[p]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) totals[p][t] = totals[p][t] * first_scale;
  }
  multiply_codes<Weights, group, Part::last_half>(blocks, x, products);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    Lanes(&total)[T] = totals[p];
    const Lanes last_scale = Weights::template scale<2 * group + 1>(*blocks[p]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) total[t] = fma(products[p][t], last_scale, total[t]);
    if constexpr (Weights::kHasMin) {
      // The halves' biases are -32 times the sums that minima need; the division is exact.
      const Lanes first_min = Weights::template min<2 * group>(*blocks[p]) * broadcast(-1.0F / 32);
      const Lanes last_min = Weights::template min<2 * group + 1>(*blocks[p]) * broadcast(-1.0F / 32);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        total[t] = fma(first_min, from_int(broadcast_int(x[t]->half_biases[0])), total[t]);
        total[t] = fma(last_min, from_int(broadcast_int(x[t]->half_biases[1])), total[t]);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[p][t] = fma(total[t], broadcast(x[t]->scale), sums[p][t]);
  }
}

// All groups of a block from `group` on; x then points to the next block's activations. ahead 0 prefetches nothing.
template <class Weights, int group, int T, int P>
[[gnu::always_inline]] inline void multiply_block(const Blocks<Weights, P>& blocks, const ActivationBlock* (&x)[T],
                                                  Lanes (&sums)[P][T], std::ptrdiff_t ahead) {
  if (ahead != 0) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) prefetch<typename Weights::Block, Weights::kGroups, group>(*blocks[p], ahead);
  }
  multiply_group<Weights, group>(blocks, x, sums);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) ++x[t];
  if constexpr (group + 1 < Weights::kGroups) {
    multiply_block<Weights, group + 1>(blocks, x, sums, ahead);
  }
}

// T rows of activations times P panels.
template <class Weights, int T, int P>
void multiply_tile(const Tile& tile) {
  const ActivationBlock* x[T];
  Blocks<Weights, P> blocks;
  Lanes sums[P][T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(tile.activations + t * tile.activation_stride);
  }
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    blocks[p] = reinterpret_cast<const typename Weights::Block*>(tile.weights + p * tile.panel_bytes);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      sums[p][t] = zero();
      prefetch_to_write(tile.out + t * tile.out_stride + p * kLanes);
    }
  }
  int wait = tile.prefetching.wait;
  for (std::int64_t b = 0; b < tile.n_blocks; ++b) {
    const bool fetches = wait == 0;
    wait = (fetches ? tile.prefetching.period : wait) - 1;
    multiply_block<Weights, 0>(blocks, x, sums, fetches ? tile.prefetching.ahead : 0);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) ++blocks[p];
  }
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const int columns = p + 1 < P ? kLanes : tile.columns - p * kLanes;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) store_up_to(tile.out + t * tile.out_stride + p * kLanes, sums[p][t], columns);
  }
}

// Calls the tile of `rows` rows, 1 to T.
template <class Weights, int T, int P>
void dispatch_tile(int rows, const Tile& tile) {
  if constexpr (T > 1) {
    if (rows < T) return dispatch_tile<Weights, T - 1, P>(rows, tile);
  }
  multiply_tile<Weights, T, P>(tile);
}

// Rows [begin, end) times P panels from column n on, in as few tiles as possible, of nearly equal height.
template <class Weights, int T, int P>
void multiply_rows(const GemmArgs& args, std::int64_t n, int begin, int end, bool reads_first) {
  Tile tile;
  tile.n_blocks = args.k / (32 * Weights::kGroups);
  tile.panel_bytes = tile.n_blocks * static_cast<std::ptrdiff_t>(sizeof(typename Weights::Block));
  tile.weights = args.weight + n / kLanes * tile.panel_bytes;
  tile.activation_stride = args.activation_stride;
  tile.out_stride = args.out_stride;
  tile.columns = static_cast<int>(args.n_end - n < P * kLanes ? args.n_end - n : P * kLanes);
  const bool prefetches = reads_first && end - begin >= args.prefetching_rows;
  const int n_tiles = ceil_div(end - begin, T);
  for (int i = 0, row = begin; i < n_tiles; ++i) {
    const int rows = (end - row) / (n_tiles - i);
    tile.activations = args.activations + row * args.activation_stride;
    tile.out = args.out + row * args.out_stride + (n - args.n_begin);
    if (prefetches) tile.prefetching = prefetching_of(i, n_tiles, P * tile.panel_bytes);
    dispatch_tile<Weights, T, P>(rows, tile);
    row += rows;
  }
}

// Calls use(n, n_end, row, row_end) for runs of rows, a multiple of `rows` but for the last, and for chunks of `panels`
// panels or a multiple. Both fit the L2 cache together. So each weight comes from memory once, and rows come from the
// L3 cache once per chunk.
template <class Weights, class Use>
void for_parts(const GemmArgs& args, int rows, int panels, const Use& use) {
  constexpr std::int64_t kRunBytes = 192 << 10, kChunkBytes = 256 << 10;
  constexpr auto kBlockBytes = static_cast<std::int64_t>(sizeof(typename Weights::Block));
  const std::int64_t fitting = kRunBytes / args.activation_stride / rows * rows;
  const int run = static_cast<int>(fitting < rows ? rows : fitting > args.m ? args.m : fitting);
  const std::int64_t n_panels = kChunkBytes / (args.k / (32 * Weights::kGroups) * kBlockBytes) / panels * panels;
  const std::int64_t chunk = (n_panels < panels ? panels : n_panels) * kLanes;
  for (std::int64_t begin = args.n_begin; begin < args.n_end; begin += chunk) {
    const std::int64_t chunk_end = args.n_end - begin < chunk ? args.n_end : begin + chunk;
    for (int row = 0; row < args.m; row += run) {
      use(begin, chunk_end, row, args.m - row < run ? args.m : row + run);
    }
  }
}

// Processes P panels at a time.
template <class Weights, int T, int P>
void multiply(const GemmArgs& args) {
  for_parts<Weights>(args, T, P, [&](std::int64_t n, std::int64_t n_end, int row, int end) {
    for (; n + (P - 1) * kLanes < n_end; n += P * kLanes) {
      multiply_rows<Weights, T, P>(args, n, row, end, row == 0);
    }
    for (; P > 1 && n < n_end; n += kLanes) multiply_rows<Weights, T, 1>(args, n, row, end, row == 0);
  });
}

}  // namespace
}  // namespace imp::cpu

// A kernel's entry point, for the list of types.
#define IMP_DEFINE_RUN(name, Type, isa)           \
  void run_##name##_##isa(const GemmArgs& args) { \
    multiply<Type, kTileRows, 1>(args);           \
  }
// One whose tiles have another shape, for the list of shapes.
#define IMP_DEFINE_SHAPED_RUN(name, Type, isa, rows, panels)          \
  void run_##name##_##isa##_##rows##x##panels(const GemmArgs& args) { \
    multiply<Type, rows, panels>(args);                               \
  }

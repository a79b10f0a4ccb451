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

// Some rows of activations times one panel.
struct Tile {
  const std::byte* weights;
  std::int64_t n_blocks;
  const std::byte* activations;      // first row of the tile
  std::ptrdiff_t activation_stride;  // bytes
  float* out;                        // first row of the tile, first column of the panel
  std::ptrdiff_t out_stride;         // floats
  int columns;                       // 16, or fewer in the last panel
  Prefetching prefetching;
};

// More than the product of one core's memory latency and bandwidth.
constexpr std::ptrdiff_t kAheadBytes = 16 << 10;
// One or two rows multiply as fast as memory is read, and the hardware prefetches best: software prefetches would cost
// a tenth to a third of the bandwidth. More rows leave pauses between reads, in which the hardware falls behind.
constexpr int kPrefetchingRows = 3;

// Prefetches the part of the block `ahead` bytes further that corresponds to a group, to the L2 cache: the L1 cache
// tracks too few misses for the full bandwidth.
template <class Block, int n_groups, int group>
[[gnu::always_inline]] inline void prefetch(const Block& block, std::ptrdiff_t ahead) {
  constexpr std::size_t begin = sizeof(Block) * group / n_groups, end = sizeof(Block) * (group + 1) / n_groups;
  const char* const from = reinterpret_cast<const char*>(&block) + ahead;
#pragma GCC unroll 16
  for (std::size_t line = begin / 64 * 64; line < end; line += 64) __builtin_prefetch(from + line, 0, 2);
}

// For tile i of n_tiles, which all pass over a panel of that many bytes. If only the first tile read a panel from
// memory, memory would be idle during the others. So together they prefetch the next panel.
inline Prefetching prefetching_of(int i, int n_tiles, std::ptrdiff_t panel_bytes) {
  return {n_tiles == 1 ? kAheadBytes : panel_bytes, i, n_tiles};
}

// Exact sums of products of T rows with a part of a group.
template <class Weights, int group, Part part, int T>
[[gnu::always_inline]] inline void multiply_codes(const typename Weights::Block& block,
                                                  const ActivationBlock* const (&x)[T], Lanes (&products)[T]) {
  Dots<Weights::kRange, part> dots[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t].start(*x[t]);
#pragma GCC unroll 8
  for (int j = part == Part::last_half ? 4 : 0; j < (part == Part::first_half ? 4 : 8); ++j) {
    const Operand<Weights::kRange> operand(Weights::template codes<group>(block, j));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) dots[t].add(operand, *x[t], j);
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) products[t] = from_int(dots[t].value(*x[t]));
}

template <class Weights, int T, int group>
[[gnu::always_inline]] inline void multiply_group(const typename Weights::Block& block,
                                                  const ActivationBlock* const (&x)[T], Lanes (&sums)[T])
  requires(Weights::kScalePer == ScalePer::group)
{
  Lanes products[T];
  multiply_codes<Weights, group, Part::whole>(block, x, products);
  const Lanes scale = Weights::template scale<group>(block);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) sums[t] = fma(products[t], scale * broadcast(x[t]->scale), sums[t]);
  if constexpr (Weights::kHasMin) {
    const Lanes min = Weights::template min<group>(block);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[t] = fma(min, broadcast(x[t]->scaled_sum), sums[t]);
  }
}

// The sum of a group's halves, multiplied once by the activations' scale.
template <class Weights, int T, int group>
[[gnu::always_inline]] inline void multiply_group(const typename Weights::Block& block,
                                                  const ActivationBlock* const (&x)[T], Lanes (&sums)[T])
  requires(Weights::kScalePer == ScalePer::half_group)
{
  Lanes total[T], products[T];
  multiply_codes<Weights, group, Part::first_half>(block, x, total);
  const Lanes first_scale = Weights::template scale<2 * group>(block);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) total[t] = total[t] * first_scale;
  multiply_codes<Weights, group, Part::last_half>(block, x, products);
  const Lanes last_scale = Weights::template scale<2 * group + 1>(block);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) total[t] = fma(products[t], last_scale, total[t]);
  if constexpr (Weights::kHasMin) {
    // The halves' biases are -32 times the sums that minima need; the division is exact.
    const Lanes first_min = Weights::template min<2 * group>(block) * broadcast(-1.0F / 32);
    const Lanes last_min = Weights::template min<2 * group + 1>(block) * broadcast(-1.0F / 32);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      total[t] = fma(first_min, from_int(broadcast_int(x[t]->half_biases[0])), total[t]);
      total[t] = fma(last_min, from_int(broadcast_int(x[t]->half_biases[1])), total[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) sums[t] = fma(total[t], broadcast(x[t]->scale), sums[t]);
}

// All groups of a block from `group` on; x then points to the next block's activations. ahead 0 prefetches nothing.
template <class Weights, int T, int group = 0>
[[gnu::always_inline]] inline void multiply_block(const typename Weights::Block& block, const ActivationBlock* (&x)[T],
                                                  Lanes (&sums)[T], std::ptrdiff_t ahead) {
  if constexpr (T >= kPrefetchingRows) {
    if (ahead != 0) prefetch<typename Weights::Block, Weights::kGroups, group>(block, ahead);
  }
  multiply_group<Weights, T, group>(block, x, sums);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) ++x[t];
  if constexpr (group + 1 < Weights::kGroups) {
    multiply_block<Weights, T, group + 1>(block, x, sums, ahead);
  }
}

template <class Weights, int T>
void multiply_tile(const Tile& tile) {
  const ActivationBlock* x[T];
  Lanes sums[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(tile.activations + t * tile.activation_stride);
    sums[t] = zero();
  }
  const auto* const blocks = reinterpret_cast<const typename Weights::Block*>(tile.weights);
  int wait = tile.prefetching.wait;
  for (std::int64_t b = 0; b < tile.n_blocks; ++b) {
    const bool fetches = wait == 0;
    wait = (fetches ? tile.prefetching.period : wait) - 1;
    multiply_block<Weights, T>(blocks[b], x, sums, fetches ? tile.prefetching.ahead : 0);
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) store_up_to(tile.out + t * tile.out_stride, sums[t], tile.columns);
}

// Calls the tile of `rows` rows, 1 to T.
template <class Weights, int T>
void dispatch_tile(int rows, const Tile& tile) {
  if constexpr (T > 1) {
    if (rows < T) return dispatch_tile<Weights, T - 1>(rows, tile);
  }
  multiply_tile<Weights, T>(tile);
}

// Rows [begin, end) times one panel, in as few tiles as possible, of nearly equal height.
template <class Weights>
void multiply_rows(const GemmArgs& args, std::int64_t n, int begin, int end, bool reads_first) {
  Tile tile;
  tile.n_blocks = args.k / (32 * Weights::kGroups);
  const std::ptrdiff_t panel_bytes = tile.n_blocks * static_cast<std::ptrdiff_t>(sizeof(typename Weights::Block));
  tile.weights = args.weight + n / kLanes * panel_bytes;
  tile.activation_stride = args.activation_stride;
  tile.out_stride = args.out_stride;
  tile.columns = static_cast<int>(args.n_end - n < kLanes ? args.n_end - n : kLanes);
  const int n_tiles = ceil_div(end - begin, kTileRows);
  for (int i = 0, row = begin; i < n_tiles; ++i) {
    const int rows = (end - row) / (n_tiles - i);
    tile.activations = args.activations + row * args.activation_stride;
    tile.out = args.out + row * args.out_stride + (n - args.n_begin);
    if (reads_first) tile.prefetching = prefetching_of(i, n_tiles, panel_bytes);
    dispatch_tile<Weights, kTileRows>(rows, tile);
    row += rows;
  }
}

// Processes one panel at a time: a single sequential stream is fastest, and two panels at once gain nothing even in
// cache. Runs of rows and chunks of panels fit the L2 cache together. So each weight comes from memory once, and rows
// come from the L3 cache once per chunk.
template <class Weights>
void multiply(const GemmArgs& args) {
  constexpr std::int64_t kRunBytes = 192 << 10, kChunkBytes = 256 << 10;
  constexpr auto kBlockBytes = static_cast<std::int64_t>(sizeof(typename Weights::Block));
  const std::int64_t fitting = kRunBytes / args.activation_stride / kTileRows * kTileRows;
  const int run = static_cast<int>(fitting < kTileRows ? kTileRows : fitting > args.m ? args.m : fitting);
  const std::int64_t n_panels = kChunkBytes / (args.k / (32 * Weights::kGroups) * kBlockBytes);
  const std::int64_t chunk = (n_panels < 1 ? 1 : n_panels) * kLanes;
  for (std::int64_t begin = args.n_begin; begin < args.n_end; begin += chunk) {
    const std::int64_t chunk_end = args.n_end - begin < chunk ? args.n_end : begin + chunk;
    for (int row = 0; row < args.m; row += run) {
      const int end = args.m - row < run ? args.m : row + run;
      for (std::int64_t n = begin; n < chunk_end; n += kLanes) multiply_rows<Weights>(args, n, row, end, row == 0);
    }
  }
}

}  // namespace
}  // namespace imp::cpu

// A kernel's entry point, for the list of types.
#define IMP_DEFINE_RUN(name, Type, isa)           \
  void run_##name##_##isa(const GemmArgs& args) { \
    multiply<Type>(args);                         \
  }

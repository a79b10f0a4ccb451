// The walk of the Q8_0 kernels over panels and rows. The including file has defined in its anonymous namespace
//   constexpr int kTileRows              the most rows of activations that one tile takes
//   template <int T, Reading reading> void multiply_tile(const Tile&)
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {
namespace {

// Calls the tile of `rows` rows, 1 to T.
template <int T, Reading reading>
void dispatch_tile(int rows, const Tile& tile) {
  if constexpr (T > 1) {
    if (rows < T) return dispatch_tile<T - 1, reading>(rows, tile);
  }
  multiply_tile<T, reading>(tile);
}

// Rows [begin, end) by one panel, in the fewest tiles, as even as can be.
void multiply_rows(const GemmArgs& args, std::int64_t n, int begin, int end) {
  const std::int64_t n_blocks = args.k / 32;
  Tile tile;
  tile.weights = reinterpret_cast<const PanelBlockQ8_0*>(args.weight) + n / kLanes * n_blocks;
  tile.n_blocks = n_blocks;
  tile.activation_stride = args.activation_stride;
  tile.out_stride = args.out_stride;
  tile.columns = static_cast<int>(args.n_end - n < kLanes ? args.n_end - n : kLanes);
  const int n_tiles = (end - begin + kTileRows - 1) / kTileRows;
  for (int i = 0, row = begin; i < n_tiles; ++i) {
    const int rows = (end - row) / (n_tiles - i);
    tile.activations = args.activations + row * args.activation_stride;
    tile.out = args.out + row * args.out_stride + n;
    if (i == 0) {
      dispatch_tile<kTileRows, Reading::first>(rows, tile);
    } else {
      dispatch_tile<kTileRows, Reading::again>(rows, tile);
    }
    row += rows;
  }
}

// Panels are walked one at a time: one sequential stream is read fastest, and two panels at once gain nothing even
// where all is in the caches. Rows are taken in runs whose activations stay in the second-level cache.
void multiply(const GemmArgs& args) {
  constexpr std::int64_t kRunBytes = 192 << 10;
  const std::int64_t fitting = kRunBytes / args.activation_stride / kTileRows * kTileRows;
  const int run = static_cast<int>(fitting < kTileRows ? kTileRows : fitting > args.m ? args.m : fitting);
  for (int row = 0; row < args.m; row += run) {
    const int end = args.m - row < run ? args.m : row + run;
    for (std::int64_t n = args.n_begin; n < args.n_end; n += kLanes) multiply_rows(args, n, row, end);
  }
}

}  // namespace
}  // namespace imp::cpu

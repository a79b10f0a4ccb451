// The order in which blocks go over all pairs of blocks of rows and passes over x: index arithmetic.
#pragma once

namespace imp::cuda {

struct BlockPlace {
  int row_block, pass;
};

// Some passes next to each other have the same weights, and soon after them others the same rows of x, so that both are
// still in the second-level cache.
constexpr BlockPlace place_in_order(int block, int n_row_blocks, int n_passes) {
  constexpr int kPassesTogether = 16;
  const int first = block / (kPassesTogether * n_row_blocks) * kPassesTogether;
  const int n_left = n_passes - first, n_together = n_left < kPassesTogether ? n_left : kPassesTogether;
  const int rest = block - first * n_row_blocks;
  return {rest / n_together, first + rest % n_together};
}

}  // namespace imp::cuda

// The order of blocks over pairs of weight rows and passes over x (block swizzling for the L2 cache).
#pragma once

namespace imp::cuda {

struct BlockPosition {
  int row_block, pass;
};

// Neighbouring blocks share weights, and blocks soon after share rows of x. So both are still in the L2 cache.
constexpr BlockPosition block_position(int block, int n_row_blocks, int n_passes) {
  constexpr int kPassesTogether = 16;
  const int first = block / (kPassesTogether * n_row_blocks) * kPassesTogether;
  const int n_left = n_passes - first, n_together = n_left < kPassesTogether ? n_left : kPassesTogether;
  const int rest = block - first * n_row_blocks;
  return {rest / n_together, first + rest % n_together};
}

}  // namespace imp::cuda

// Decodes rows of a table: host code.
#include "backend/cuda/ops/embedding.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/gemm.h"
#include "base/error.h"
#include "tensor/quant/with_block.h"

namespace imp::cuda {

void embed(Stream& stream, const std::int32_t* tokens, const Answer* answers, int n, const std::byte* table, DType type,
           WeightLayout layout, std::int64_t k, float scale, Rows out) {
  const LaunchShape shape = {.grid = static_cast<unsigned>(n), .block = Embedding::kThreads};
  quant::with_block(type, [&]<class Block>() {
    if (layout == WeightLayout::file) {
      return launch(stream, embed_rows_kernel<Block>, shape, tokens, answers, table, k, scale, out);
    }
    IMP_CHECK(layout == WeightLayout::tile16 && TileRow<Block>::kExists);
    if constexpr (TileRow<Block>::kExists) {
      launch(stream, embed_tiles_kernel<Block>, shape, tokens, answers, table, k, scale, out);
    }
  });
}

}  // namespace imp::cuda

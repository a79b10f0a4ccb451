// Tile16 weights times many rows of float16 or bfloat16, with warp matrix instructions: host code.
#include "backend/cuda/gemm/hmma.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <DType kType>
void launch_hmma(const GemmLaunch& launch) {
  using Shape = Hmma<kType>;
  const TileWork work = tile_work_of(launch);
  const int n_blocks = n_row_blocks_of(work, strips_of_block(work.fusion, Shape::kStripWarps)) *
                       n_passes_of(work.m, work.n_experts, Shape::kBatchRows);
  cuda::launch(stream_of(launch), hmma_kernel<kType>,
               {.grid = static_cast<unsigned>(n_blocks), .block = Shape::kThreads, .shared_bytes = Shape::kSharedBytes},
               work);
}

}  // namespace

IMP_TILE_TYPES(IMP_DEFINE_LAUNCH, hmma)

}  // namespace imp::cuda

// Tile16 weights times many rows of float16 or bfloat16, with Hopper's wgmma: host code.
#include "backend/cuda/gemm/wgmma.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <class Shape>
int n_wgmma_blocks(const TileWork& work) {
  return n_row_blocks_of(work, wgmma_strips<Shape>(work)) * n_passes_of(work.m, 0, Shape::kBatchRows);
}

template <DType kType, class Shape>
void launch_blocks(Stream& stream, const TileWork& work) {
  const std::int64_t k = std::int64_t{work.n_tiles} * kTileElements;
  const hopper::TensorMap x =
      hopper::make_tensor_map(stream, work.x, k, work.m, std::int64_t{work.x_stride}, Shape::kBatchRows);
  cuda::launch(stream, wgmma_kernel<kType, Shape>,
               {.grid = static_cast<unsigned>(n_wgmma_blocks<Shape>(work)),
                .block = static_cast<unsigned>(Shape::kThreads),
                .shared_bytes = Shape::kSharedBytes},
               x, work);
}

// Tensor copies take consecutive rows of x, so experts use the other kernel. A gate and its product are two strips of a
// warp.
template <DType kType>
void launch_wgmma(const GemmLaunch& launch, void (*launch_for_experts)(const GemmLaunch&)) {
  if (launch.n_experts > 0) return launch_for_experts(launch);
  const TileWork work = tile_work_of(launch);
  Stream& stream = stream_of(launch);
  const bool is_narrow = work.fusion == GemmFusion::none && n_wgmma_blocks<WideWgmma>(work) < stream.n_processors;
  is_narrow ? launch_blocks<kType, NarrowWgmma>(stream, work) : launch_blocks<kType, WideWgmma>(stream, work);
}

}  // namespace

#define IMP_DEFINE_WGMMA(name, Type, kernel)                    \
  void launch_##name##_##kernel(const GemmLaunch& launch) {     \
    launch_##kernel<DType::Type>(launch, launch_##name##_hmma); \
  }
IMP_TILE_TYPES(IMP_DEFINE_WGMMA, wgmma)
#undef IMP_DEFINE_WGMMA

}  // namespace imp::cuda

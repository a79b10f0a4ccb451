// Tile16 weights times many rows of float16 or bfloat16, with Hopper's wgmma: host code.
#include "backend/cuda/gemm/wgmma.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <class Shape>
int n_wgmma_blocks(const TileWork& work) {
  return n_row_blocks_of(work, wgmma_strips<Shape>(work)) * n_passes_of(work.m, 0, Shape::kColumns);
}

template <DType kType, class Shape>
void launch_blocks(Stream& stream, const TileWork& work) {
  const std::int64_t k = std::int64_t{work.n_tiles} * kTileElements;
  const hopper::TensorMap x =
      hopper::make_tensor_map(stream, work.x, k, work.m, std::int64_t{work.x_stride}, Shape::kColumns);
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

void launch_q8_0_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::Q8_0>(launch, launch_q8_0_hmma);
}
void launch_q4_0_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::Q4_0>(launch, launch_q4_0_hmma);
}
void launch_q4_k_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::Q4_K>(launch, launch_q4_k_hmma);
}
void launch_q5_k_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::Q5_K>(launch, launch_q5_k_hmma);
}
void launch_q6_k_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::Q6_K>(launch, launch_q6_k_hmma);
}
void launch_f8_e4m3_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::F8_E4M3>(launch, launch_f8_e4m3_hmma);
}
void launch_f16_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::F16>(launch, launch_f16_hmma);
}
void launch_bf16_wgmma(const GemmLaunch& launch) {
  launch_wgmma<DType::BF16>(launch, launch_bf16_hmma);
}

}  // namespace imp::cuda

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
                       n_passes_of(work.m, work.n_experts, Shape::kColumns);
  cuda::launch(stream_of(launch), hmma_kernel<kType>,
               {.grid = static_cast<unsigned>(n_blocks), .block = Shape::kThreads, .shared_bytes = Shape::kSharedBytes},
               work);
}

}  // namespace

void launch_q8_0_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::Q8_0>(launch);
}
void launch_q4_0_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::Q4_0>(launch);
}
void launch_q4_k_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::Q4_K>(launch);
}
void launch_q5_k_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::Q5_K>(launch);
}
void launch_q6_k_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::Q6_K>(launch);
}
void launch_f8_e4m3_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::F8_E4M3>(launch);
}
void launch_f16_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::F16>(launch);
}
void launch_bf16_hmma(const GemmLaunch& launch) {
  launch_hmma<DType::BF16>(launch);
}

}  // namespace imp::cuda

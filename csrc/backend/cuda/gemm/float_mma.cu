// Weights of float16 or bfloat16 by any number of rows of the same: the host's side.
#include "backend/cuda/gemm/float_mma.cuh"

#include "backend/cuda/gemm/tile_kernels.h"

namespace imp::cuda {
namespace {

template <DType kType, int kGroups>
void launch_groups(const GemmLaunch& launch, const TileWork& work) {
  cuda::launch(stream_of(launch), mma_kernel<kType, kGroups>, shape_of(work, kGroups * 8, 0), work);
}

template <DType kType>
void launch_float_mma(const GemmLaunch& launch) {
  const TileWork work = tile_work_of(launch);
  switch (columns_for(work, 8, 32)) {
    case 8:
      return launch_groups<kType, 1>(launch, work);
    case 16:
      return launch_groups<kType, 2>(launch, work);
    default:
      return launch_groups<kType, 4>(launch, work);
  }
}

}  // namespace

void launch_f16_mma(const GemmLaunch& launch) {
  launch_float_mma<DType::F16>(launch);
}
void launch_bf16_mma(const GemmLaunch& launch) {
  launch_float_mma<DType::BF16>(launch);
}

}  // namespace imp::cuda

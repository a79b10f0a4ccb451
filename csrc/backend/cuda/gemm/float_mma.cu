// Float16, bfloat16 or F8_E4M3 weights times any number of rows: host code.
#include "backend/cuda/gemm/float_mma.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <DType kType, int kGroups>
void launch_groups(const GemmLaunch& launch, const TileWork& work) {
  cuda::launch(stream_of(launch), mma_kernel<kType, kGroups>, shape_of(work, kGroups * 8, 0), work);
}

// For 8-bit codes, two passes of 16 rows of x are as fast as one of 32: the second finds the weights in the cache, both
// wait for reads of x, and a single pass lacks registers.
template <DType kType>
void launch_mma(const GemmLaunch& launch) {
  constexpr int kMaxBatchRows = kType == DType::F8_E4M3 ? 16 : 32;
  const TileWork work = tile_work_of(launch);
  switch (batch_rows_for(work, 8, kMaxBatchRows)) {
    case 8:
      return launch_groups<kType, 1>(launch, work);
    case 16:
      return launch_groups<kType, 2>(launch, work);
    default:
      return launch_groups<kType, kMaxBatchRows / 8>(launch, work);
  }
}

}  // namespace

IMP_FLOAT_TILE_TYPES(IMP_DEFINE_LAUNCH, mma)

}  // namespace imp::cuda

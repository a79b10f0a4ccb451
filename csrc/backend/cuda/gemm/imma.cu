// Quantized weights times any number of rows of int8: host code.
#include "backend/cuda/gemm/imma.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <DType kType, int kGroups>
void launch_groups(const GemmLaunch& launch, const TileWork& work) {
  cuda::launch(stream_of(launch), imma_kernel<kType, kGroups>, shape_of(work, kGroups * kGroupBatchRows, 0), work);
}

template <DType kType>
void launch_imma(const GemmLaunch& launch) {
  const TileWork work = tile_work_of(launch);
  switch (batch_rows_for(work, kGroupBatchRows, 4 * kGroupBatchRows) / kGroupBatchRows) {
    case 1:
      return launch_groups<kType, 1>(launch, work);
    case 2:
      return launch_groups<kType, 2>(launch, work);
    default:
      return launch_groups<kType, 4>(launch, work);
  }
}

}  // namespace

IMP_INTEGER_TILE_TYPES(IMP_DEFINE_LAUNCH, imma)

}  // namespace imp::cuda

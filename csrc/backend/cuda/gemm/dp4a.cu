// Quantized weights times up to four rows of int8: host code.
#include "backend/cuda/gemm/dp4a.cuh"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

template <DType kType, int kBatchRows>
void launch_batch_rows(const GemmLaunch& launch, const TileWork& work) {
  const auto x_bytes = static_cast<std::size_t>(kBatchRows * work.n_tiles * kRowBytesOfTile);
  cuda::launch(stream_of(launch), dp4a_kernel<kType, kBatchRows>, shape_of(work, kBatchRows, x_bytes), work);
}

template <DType kType>
void launch_dp4a(const GemmLaunch& launch) {
  const TileWork work = tile_work_of(launch);
  switch (batch_rows_for(work, 1, kDp4aBatchRows)) {
    case 1:
      return launch_batch_rows<kType, 1>(launch, work);
    case 2:
      return launch_batch_rows<kType, 2>(launch, work);
    default:
      return launch_batch_rows<kType, kDp4aBatchRows>(launch, work);
  }
}

}  // namespace

std::size_t dp4a_shared_bytes(std::int64_t k) noexcept {
  return static_cast<std::size_t>(kDp4aBatchRows * tiles_along(k) * kRowBytesOfTile) +
         static_cast<std::size_t>(n_sums(2, kMaxSlices, kDp4aBatchRows)) * sizeof(float);
}

IMP_INTEGER_TILE_TYPES(IMP_DEFINE_LAUNCH, dp4a)

}  // namespace imp::cuda

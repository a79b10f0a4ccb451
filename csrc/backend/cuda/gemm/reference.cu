// Products with weights of any type: host code.
#include "backend/cuda/gemm/reference.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/gemm/kernels.h"
#include "tensor/quant/with_block.h"

namespace imp::cuda {

void launch_reference(const GemmLaunch& launch) {
  ReferenceWork work;
  int n_column_tiles = 0;
  for (const GemmLaunchTerm& term : launch.terms) {
    work.terms[work.n_terms++] = term;
    n_column_tiles += reference_column_tiles(term.n);
  }
  work.x = launch.x;
  work.x_stride = launch.x_stride;
  work.m = launch.m;
  work.k = static_cast<int>(launch.k);
  work.row_bytes = *row_bytes(launch.weight_type, launch.k);
  work.n_experts = launch.n_experts;
  work.begins = launch.begins;
  work.sources = launch.sources;
  const LaunchShape shape = {.grid = {static_cast<unsigned>(n_column_tiles),
                                      static_cast<unsigned>(reference_row_tiles(launch.m, launch.n_experts))},
                             .block = Reference::kThreads};
  quant::with_block(launch.weight_type,
                    [&]<class Block>() { cuda::launch(stream_of(launch), reference_kernel<Block>, shape, work); });
}

}  // namespace imp::cuda

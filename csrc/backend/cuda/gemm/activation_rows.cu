// Prepares activations: host code.
#include "backend/cuda/gemm/activation_rows.cuh"

#include "backend/cuda/device/launch.cuh"
#include "base/error.h"

namespace imp::cuda {

void prepare_rows(Stream& stream, Rows x, ActivationFormat format, std::byte* out) {
  const std::int64_t row_bytes = activation_row_bytes(format, x.width), k_padded = padded_depth(x.width);
  const auto n_rows = static_cast<unsigned>(x.n_rows);
  const LaunchShape by_tile = {.grid = {n_rows, static_cast<unsigned>(k_padded / kTileDepth)},
                               .block = kPrepareThreads};
  const LaunchShape by_row = {.grid = n_rows, .block = kPrepareThreads};
  switch (format) {
    case ActivationFormat::q8_rows:
      return launch(stream, quantize_rows_kernel, by_tile, x, out, row_bytes);
    case ActivationFormat::f16_rows:
      return launch(stream, scale_rows_kernel<false>, by_row, x, out, row_bytes, k_padded);
    case ActivationFormat::f16_even_odd:
      return launch(stream, scale_rows_kernel<true>, by_row, x, out, row_bytes, k_padded);
    case ActivationFormat::bf16_rows:
      return launch(stream, round_rows_kernel, by_tile, x, out, row_bytes);
    default:
      IMP_CHECK(false);
  }
}

}  // namespace imp::cuda

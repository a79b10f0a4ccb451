// Measures the time of GPU kernels, for the real device and for the emulated one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/attention.h"
#include "backend/gemm.h"

namespace imp::bindings {

// Seconds of one product or of one layer's attention. Each is a mean over a pass through memory larger than any cache.
using Seconds = std::vector<double>;

struct ProductBench {
  GemmProblem problem;
  std::span<const std::byte> rows;                 // some rows of the file's own format, repeated until there are n
  std::span<const float> x;                        // some rows of k, repeated likewise
  std::vector<std::pair<std::string, int>> cases;  // kernel and rows
  std::size_t walk_bytes = 0;  // bytes of the copies of the weight, which are read in turn; at least one copy
  double seconds = 0;          // approximate time for each case
  int n_threads = 1;           // threads that pack weights
  std::vector<std::string> cublaslt = {};  // as DeviceOptions has it
};

// Sequences of equal length over layers that are read in turn.
struct AttentionBench {
  AttentionParams params;
  int n_sequences = 1;
  int n_rows = 1;  // rows of each sequence: its last tokens
  int n_tokens = 1;
  int n_layers = 1;
  double seconds = 0;
};

}  // namespace imp::bindings

// The functions for the real device and for the emulated one.
#define IMP_DECLARE_GPU_BENCH(room)                                                   \
  namespace imp::room {                                                               \
  std::vector<float> multiply(const bindings::ProductBench& bench);                   \
  std::vector<bindings::Seconds> bench_products(const bindings::ProductBench& bench); \
  bindings::Seconds bench_attention(const bindings::AttentionBench& bench);           \
  }
// multiply: the result of the first case, row by row.
IMP_DECLARE_GPU_BENCH(cuda)
IMP_DECLARE_GPU_BENCH(cuda_emulated)
#undef IMP_DECLARE_GPU_BENCH

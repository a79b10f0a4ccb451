// How long the kernels of a GPU take: what is asked and what is found, for the real device and for the emulated one.
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

// Seconds of one product or one layer's attention: each a mean over one walk through memory that no cache holds.
using Seconds = std::vector<double>;

struct ProductBench {
  GemmProblem problem;
  std::span<const std::byte> rows;                 // some rows of the file's own format, repeated until there are n
  std::span<const float> x;                        // some rows of k, repeated likewise
  std::vector<std::pair<std::string, int>> cases;  // kernel and rows
  std::size_t walk_bytes = 0;                      // of copies of the weight that are read in turn; at least one
  double seconds = 0;                              // for each case, about
  int n_threads = 1;                               // that pack
  std::vector<std::string> cublaslt = {};          // as DeviceOptions has it
};

// Sequences of equal length over layers that are read in turn.
struct AttentionBench {
  AttentionParams params;
  int n_sequences = 1;
  int n_rows = 1;  // of each: the last of its tokens
  int n_tokens = 1;
  int n_layers = 1;
  double seconds = 0;
};

}  // namespace imp::bindings

// Of the real device and of the emulated one.
#define IMP_DECLARE_GPU_BENCH(room)                                                   \
  namespace imp::room {                                                               \
  std::vector<float> multiply(const bindings::ProductBench& bench);                   \
  std::vector<bindings::Seconds> bench_products(const bindings::ProductBench& bench); \
  bindings::Seconds bench_attention(const bindings::AttentionBench& bench);           \
  }
// multiply: what comes of the first case, row after row.
IMP_DECLARE_GPU_BENCH(cuda)
IMP_DECLARE_GPU_BENCH(cuda_emulated)
#undef IMP_DECLARE_GPU_BENCH

// Times one kernel on the same path as a model's step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/gemm.h"
#include "base/thread_pool.h"

namespace imp::cpu {

struct GemmBench {
  std::string_view kernel;
  DType weight = DType::F32;  // for kernels of any type
  int m = 1;
  std::int64_t n = 0;
  std::int64_t k = 0;
  // Bytes of weights to cycle through, so that they come from memory as a model's do; at least one weight.
  std::int64_t total_bytes = 0;
  double seconds = 1;
};

struct GemmBenchResult {
  std::vector<double> seconds;  // of each product: the mean over all weights
  std::int64_t ops = 0;         // of one product; a multiply and an add count as two
  std::int64_t bytes = 0;       // of one weight
};

// Throws InvalidArgument for an unknown kernel, or with the kernel's reason if it refuses.
GemmBenchResult bench_gemm(const GemmBench& bench, const DeviceCaps& caps, ThreadPool& pool);

}  // namespace imp::cpu

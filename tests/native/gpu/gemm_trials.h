// For tests: packs weights, prepares activations, and runs a kernel on host arrays, with guard bytes around all memory
// that it may write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/gemm.h"
#include "backend/gemm_launch.h"
#include "tensor/dtype.h"

namespace imp {

struct GemmTrialTerm {
  std::vector<std::span<const std::byte>> weights;  // rows of the file: one matrix, or each expert's; empty if another
                                                    // kernel multiplies them
  std::span<const float> bias;                      // [n], or empty
  std::int64_t n = 0;
};

struct GemmTrial {
  std::string kernel;
  DType weight = DType::F32;
  std::int64_t k = 0;
  int m = 0;
  std::vector<GemmTrialTerm> terms;
  GemmFusion fusion = GemmFusion::none;
  std::span<const std::byte> x;  // rows in the kernel's activation format
  std::ptrdiff_t x_stride = 0;
  int n_experts = 0;
  std::span<const std::int32_t> begins, sources;  // sources may be empty
  unsigned thread_order = 0;
  int n_processors = 1;               // the device's processors, as launches see them
  std::uint8_t fill = 0xFF;           // initial bytes of outputs and scratch
  std::vector<std::string> cublaslt;  // as in DeviceOptions
};

// Rows of x [m, k], with a stride greater than k, in the format that the kernel reads. Throws as run_gemm() does.
struct PreparationTrial {
  ActivationFormat format = ActivationFormat::q8_rows;
  std::span<const float> x;
  int m = 0;
  int k = 0;
  unsigned thread_order = 0;
};

// Throw std::invalid_argument if there is no such kernel or it refuses, and std::runtime_error if the kernel wrote
// outside its output. Return a term's out, row by row; unwritten elements hold the fill.
#define IMP_DECLARE_GEMM_TRIALS(room)                                                                                  \
  namespace room {                                                                                                     \
  std::vector<std::vector<float>> run_gemm(const GemmTrial& trial);                                                    \
  std::vector<std::byte> run_preparation(const PreparationTrial& trial);                                               \
  std::vector<std::byte> pack_tiles(DType weight, std::int64_t n, std::int64_t k, std::span<const std::byte> file);    \
  std::vector<std::byte> unpack_tiles(DType weight, std::int64_t n, std::int64_t k, std::span<const std::byte> tiles); \
  }
IMP_DECLARE_GEMM_TRIALS(cuda)
IMP_DECLARE_GEMM_TRIALS(cuda_emulated)
#undef IMP_DECLARE_GEMM_TRIALS

}  // namespace imp

// For tests: packs weights, prepares activations, and runs a kernel of the list on arrays of the host, with canaries
// around all it may touch.
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
  std::vector<std::span<const std::byte>> weights;  // rows of the file: one matrix, or each expert's; empty where not
                                                    // the kernel's
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
  std::span<const std::int32_t> begins, sources;  // sources: or empty
  unsigned thread_order = 0;
  int n_processors = 1;               // what launches are told that the device has
  std::uint8_t fill = 0xFF;           // of outputs and scratch, before
  std::vector<std::string> cublaslt;  // as DeviceOptions has it
};

// Rows of x [m, k], which are further apart than they are wide, as the kernels of the format read them. Throws as
// run_gemm() does.
struct PreparationTrial {
  ActivationFormat format = ActivationFormat::q8_rows;
  std::span<const float> x;
  int m = 0;
  int k = 0;
  unsigned thread_order = 0;
};

// These throw std::invalid_argument where there is no such kernel or it refuses, std::runtime_error where the kernel
// wrote what is not its own. A term's out, row by row: what was not written holds the fill.
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

// The rows of the list, best first.
#include "backend/cuda/gemm/kernel_list.h"

#include "backend/cuda/gemm/kernels.h"
#include "backend/cuda/gemm/tile_kernels.h"

namespace imp::cuda {
namespace {

const char* refuses_nothing(const GemmProblem&, const DeviceCaps&) {
  return nullptr;
}
std::size_t no_scratch(const GemmProblem&, int) {
  return 0;
}

const char* refuses_before_8_0(const GemmProblem&, const DeviceCaps& caps) {
  return caps.compute_capability < 80 ? "needs compute capability 8.0" : nullptr;
}

const char* refuses_dp4a(const GemmProblem& problem, const DeviceCaps& caps) {
  if (const char* const reason = refuses_before_8_0(problem, caps)) return reason;
  return dp4a_shared_bytes(problem.k) > caps.shared_bytes ? "k is too large for four rows in shared memory" : nullptr;
}

constexpr GemmKernel dp4a_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return {name,
          weight,
          false,
          WeightLayout::tile16,
          ActivationFormat::q8_rows,
          4,
          ReductionId::q8_slices,
          Maturity::emulated,
          refuses_dp4a,
          no_scratch,
          nullptr,
          launch,
          kAnyRows,
          true};
}
constexpr GemmKernel mma_row(std::string_view name, DType weight, ActivationFormat format, ReductionId reduction,
                             void (*launch)(const GemmLaunch&)) {
  return {name,
          weight,
          false,
          WeightLayout::tile16,
          format,
          kAnyRows,
          reduction,
          Maturity::emulated,
          refuses_before_8_0,
          no_scratch,
          nullptr,
          launch,
          64,
          true};
}
constexpr GemmKernel imma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return mma_row(name, weight, ActivationFormat::q8_rows, ReductionId::q8_slices, launch);
}

constexpr GemmKernel kKernels[] = {
    dp4a_row("q8_0_dp4a", DType::Q8_0, launch_q8_0_dp4a),
    dp4a_row("q4_0_dp4a", DType::Q4_0, launch_q4_0_dp4a),
    dp4a_row("q4_k_dp4a", DType::Q4_K, launch_q4_k_dp4a),
    dp4a_row("q5_k_dp4a", DType::Q5_K, launch_q5_k_dp4a),
    dp4a_row("q6_k_dp4a", DType::Q6_K, launch_q6_k_dp4a),
    imma_row("q8_0_imma", DType::Q8_0, launch_q8_0_imma),
    imma_row("q4_0_imma", DType::Q4_0, launch_q4_0_imma),
    imma_row("q4_k_imma", DType::Q4_K, launch_q4_k_imma),
    imma_row("q5_k_imma", DType::Q5_K, launch_q5_k_imma),
    imma_row("q6_k_imma", DType::Q6_K, launch_q6_k_imma),
    mma_row("f16_mma", DType::F16, ActivationFormat::f16_rows, ReductionId::float_slices, launch_f16_mma),
    mma_row("bf16_mma", DType::BF16, ActivationFormat::bf16_rows, ReductionId::float_slices, launch_bf16_mma),
    {.name = "reference",
     .weight = DType::F32,
     .any_weight = true,
     .layout = WeightLayout::file,
     .activations = ActivationFormat::f32,
     .max_m = kAnyRows,
     .reduction = ReductionId::f32_sequential,
     .maturity = Maturity::emulated,
     .refuses = refuses_nothing,
     .scratch_bytes = no_scratch,
     .run = nullptr,
     .launch = launch_reference},
};

}  // namespace

std::span<const GemmKernel> kernel_list() noexcept {
  return kKernels;
}

}  // namespace imp::cuda

// The kernel list, best first.
#include "backend/cuda/gemm/kernel_list.h"

#include "backend/cuda/gemm/cublaslt/rows.h"
#include "backend/cuda/gemm/kernels.h"

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
  return {.name = name,
          .weight = weight,
          .any_weight = false,
          .layout = WeightLayout::tile16,
          .activations = ActivationFormat::q8_rows,
          .max_m = 4,
          .reduction = ReductionId::q8_slices,
          .validated = false,
          .refuses = refuses_dp4a,
          .scratch_bytes = no_scratch,
          .run = nullptr,
          .launch = launch,
          .fuses = true};
}
constexpr GemmKernel mma_row(std::string_view name, DType weight, ActivationFormat format, ReductionId reduction,
                             void (*launch)(const GemmLaunch&)) {
  return {.name = name,
          .weight = weight,
          .any_weight = false,
          .layout = WeightLayout::tile16,
          .activations = format,
          .max_m = kAnyRows,
          .reduction = reduction,
          .validated = false,
          .refuses = refuses_before_8_0,
          .scratch_bytes = no_scratch,
          .run = nullptr,
          .launch = launch,
          .best_m = 64,
          .fuses = true};
}
constexpr GemmKernel imma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return mma_row(name, weight, ActivationFormat::q8_rows, ReductionId::q8_slices, launch);
}

const char* refuses_without_wgmma(const GemmProblem&, const DeviceCaps& caps) {
  return caps.wgmma ? nullptr : "needs products of warpgroups, which compute capability 9.0 has";
}

constexpr GemmKernel many_row(std::string_view name, DType weight, ActivationFormat format,
                              const char* (*refuses)(const GemmProblem&, const DeviceCaps&),
                              void (*launch)(const GemmLaunch&)) {
  return {.name = name,
          .weight = weight,
          .any_weight = false,
          .layout = WeightLayout::tile16,
          .activations = format,
          .max_m = kAnyRows,
          .reduction = ReductionId::float_steps,
          .validated = false,
          .refuses = refuses,
          .scratch_bytes = no_scratch,
          .run = nullptr,
          .launch = launch,
          .fuses = true};
}
constexpr GemmKernel wgmma_row(std::string_view name, DType weight, ActivationFormat format,
                               void (*launch)(const GemmLaunch&)) {
  return many_row(name, weight, format, refuses_without_wgmma, launch);
}
constexpr GemmKernel hmma_row(std::string_view name, DType weight, ActivationFormat format,
                              void (*launch)(const GemmLaunch&)) {
  return many_row(name, weight, format, refuses_before_8_0, launch);
}

// From this number of rows on, multiplying takes longer than decoding the weights to memory first.
constexpr int kCublasLtLeastRows = 256;

const char* refuses_without_cublaslt(const GemmProblem& problem, const DeviceCaps& caps) {
  if (const char* const reason = refuses_before_8_0(problem, caps)) return reason;
  if (problem.is_of_experts) {
    return "how many rows an expert has is known on the GPU alone, and the library must be told: name the others by "
           "their tensors";
  }
  if (caps.cublaslt == nullptr) return "cuBLASLt is not at hand: it is looked for where the GPU is";
  return caps.cublaslt->refusal();
}
constexpr GemmKernel cublaslt_row(std::string_view name, DType weight, ActivationFormat format,
                                  void (*launch)(const GemmLaunch&)) {
  GemmKernel row = many_row(name, weight, format, refuses_without_cublaslt, launch);
  row.reduction = ReductionId::library;
  row.scratch_bytes = cublaslt_scratch_bytes;
  row.least_m = kCublasLtLeastRows;
  row.prepare = prepare_cublaslt;
  return row;
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
    mma_row("f8_e4m3_mma", DType::F8_E4M3, ActivationFormat::f16_even_odd, ReductionId::float_slices,
            launch_f8_e4m3_mma),
    mma_row("f16_mma", DType::F16, ActivationFormat::f16_rows, ReductionId::float_slices, launch_f16_mma),
    mma_row("bf16_mma", DType::BF16, ActivationFormat::bf16_rows, ReductionId::float_slices, launch_bf16_mma),
    wgmma_row("q8_0_wgmma", DType::Q8_0, ActivationFormat::f16_even_odd, launch_q8_0_wgmma),
    wgmma_row("q4_0_wgmma", DType::Q4_0, ActivationFormat::f16_even_odd, launch_q4_0_wgmma),
    wgmma_row("q4_k_wgmma", DType::Q4_K, ActivationFormat::f16_even_odd, launch_q4_k_wgmma),
    wgmma_row("q5_k_wgmma", DType::Q5_K, ActivationFormat::f16_even_odd, launch_q5_k_wgmma),
    wgmma_row("q6_k_wgmma", DType::Q6_K, ActivationFormat::f16_even_odd, launch_q6_k_wgmma),
    wgmma_row("f8_e4m3_wgmma", DType::F8_E4M3, ActivationFormat::f16_even_odd, launch_f8_e4m3_wgmma),
    wgmma_row("f16_wgmma", DType::F16, ActivationFormat::f16_rows, launch_f16_wgmma),
    wgmma_row("bf16_wgmma", DType::BF16, ActivationFormat::bf16_rows, launch_bf16_wgmma),
    hmma_row("q8_0_hmma", DType::Q8_0, ActivationFormat::f16_even_odd, launch_q8_0_hmma),
    hmma_row("q4_0_hmma", DType::Q4_0, ActivationFormat::f16_even_odd, launch_q4_0_hmma),
    hmma_row("q4_k_hmma", DType::Q4_K, ActivationFormat::f16_even_odd, launch_q4_k_hmma),
    hmma_row("q5_k_hmma", DType::Q5_K, ActivationFormat::f16_even_odd, launch_q5_k_hmma),
    hmma_row("q6_k_hmma", DType::Q6_K, ActivationFormat::f16_even_odd, launch_q6_k_hmma),
    hmma_row("f8_e4m3_hmma", DType::F8_E4M3, ActivationFormat::f16_even_odd, launch_f8_e4m3_hmma),
    hmma_row("f16_hmma", DType::F16, ActivationFormat::f16_rows, launch_f16_hmma),
    hmma_row("bf16_hmma", DType::BF16, ActivationFormat::bf16_rows, launch_bf16_hmma),
    // cuBLASLt comes after the kernels that need nothing but the GPU, until measurements change the order. Overrides
    // can select it.
    cublaslt_row("q8_0_cublaslt", DType::Q8_0, ActivationFormat::f16_even_odd, launch_q8_0_cublaslt),
    cublaslt_row("q4_0_cublaslt", DType::Q4_0, ActivationFormat::f16_even_odd, launch_q4_0_cublaslt),
    cublaslt_row("q4_k_cublaslt", DType::Q4_K, ActivationFormat::f16_even_odd, launch_q4_k_cublaslt),
    cublaslt_row("q5_k_cublaslt", DType::Q5_K, ActivationFormat::f16_even_odd, launch_q5_k_cublaslt),
    cublaslt_row("q6_k_cublaslt", DType::Q6_K, ActivationFormat::f16_even_odd, launch_q6_k_cublaslt),
    cublaslt_row("f8_e4m3_cublaslt", DType::F8_E4M3, ActivationFormat::f16_even_odd, launch_f8_e4m3_cublaslt),
    cublaslt_row("f16_cublaslt", DType::F16, ActivationFormat::f16_rows, launch_f16_cublaslt),
    cublaslt_row("bf16_cublaslt", DType::BF16, ActivationFormat::bf16_rows, launch_bf16_cublaslt),
    {.name = "reference",
     .weight = DType::F32,
     .any_weight = true,
     .layout = WeightLayout::file,
     .activations = ActivationFormat::f32,
     .max_m = kAnyRows,
     .reduction = ReductionId::f32_sequential,
     .validated = false,
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

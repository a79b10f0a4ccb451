// The kernel list, best first.
#include "backend/cuda/gemm/kernel_list.h"

#include "backend/cuda/gemm/kernels.h"

namespace imp::cuda {
namespace {

const char* refuses_nothing(const GemmProblem&, const DeviceCaps&) {
  return nullptr;
}
std::size_t no_scratch(const GemmProblem&, int) {
  return 0;
}

// Activations of kernels that multiply floats. Integer codes and F8_E4M3 are decoded to float16.
constexpr ActivationFormat float_format(DType weight) {
  if (weight == DType::BF16) return ActivationFormat::bf16_rows;
  return weight == DType::F16 ? ActivationFormat::f16_rows : ActivationFormat::f16_even_odd;
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
constexpr GemmKernel few_row(std::string_view name, DType weight, ActivationFormat format, ReductionId reduction,
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
          .max_preferred_m = 64,
          .fuses = true};
}
constexpr GemmKernel imma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return few_row(name, weight, ActivationFormat::q8_rows, ReductionId::q8_slices, launch);
}
constexpr GemmKernel mma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return few_row(name, weight, float_format(weight), ReductionId::float_slices, launch);
}

const char* refuses_without_wgmma(const GemmProblem&, const DeviceCaps& caps) {
  return caps.wgmma ? nullptr : "needs products of warpgroups, which compute capability 9.0 has";
}

constexpr GemmKernel many_row(std::string_view name, DType weight,
                              const char* (*refuses)(const GemmProblem&, const DeviceCaps&),
                              void (*launch)(const GemmLaunch&)) {
  return {.name = name,
          .weight = weight,
          .any_weight = false,
          .layout = WeightLayout::tile16,
          .activations = float_format(weight),
          .max_m = kAnyRows,
          .reduction = ReductionId::float_steps,
          .validated = false,
          .refuses = refuses,
          .scratch_bytes = no_scratch,
          .run = nullptr,
          .launch = launch,
          .fuses = true};
}
constexpr GemmKernel wgmma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return many_row(name, weight, refuses_without_wgmma, launch);
}
constexpr GemmKernel hmma_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  return many_row(name, weight, refuses_before_8_0, launch);
}

// From this number of rows on, multiplying takes longer than decoding the weights to memory first.
constexpr int kCublasLtMinRows = 256;

const char* refuses_without_cublaslt(const GemmProblem& problem, const DeviceCaps& caps) {
  if (const char* const reason = refuses_before_8_0(problem, caps)) return reason;
  if (problem.is_of_experts) {
    return "only the GPU knows how many rows an expert has, and cuBLASLt needs the number on the host; an override "
           "can name the other weights by their tensors";
  }
  if (caps.cublaslt == nullptr) return "cuBLASLt is not available: imp looks for it on the machine with the GPU";
  return caps.cublaslt->refusal();
}
constexpr GemmKernel cublaslt_row(std::string_view name, DType weight, void (*launch)(const GemmLaunch&)) {
  GemmKernel row = many_row(name, weight, refuses_without_cublaslt, launch);
  row.reduction = ReductionId::library;
  row.scratch_bytes = cublaslt_scratch_bytes;
  row.min_preferred_m = kCublasLtMinRows;
  row.prepare = prepare_cublaslt;
  return row;
}

#define IMP_ROW(name, Type, kernel) kernel##_row(#name "_" #kernel, DType::Type, launch_##name##_##kernel),

// The macro's rows end in commas, which the formatter does not see.
// clang-format off
constexpr GemmKernel kKernels[] = {
    IMP_INTEGER_TILE_TYPES(IMP_ROW, dp4a)
    IMP_INTEGER_TILE_TYPES(IMP_ROW, imma)
    IMP_FLOAT_TILE_TYPES(IMP_ROW, mma)
    IMP_TILE_TYPES(IMP_ROW, wgmma)
    IMP_TILE_TYPES(IMP_ROW, hmma)
    // cuBLASLt comes after the kernels that need nothing but the GPU, until measurements change the order. Overrides
    // can select it.
    IMP_TILE_TYPES(IMP_ROW, cublaslt)
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
// clang-format on

#undef IMP_ROW

}  // namespace

std::span<const GemmKernel> kernel_list() noexcept {
  return kKernels;
}

}  // namespace imp::cuda

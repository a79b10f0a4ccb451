// The CPU's kernels: one row each, best first. A new kernel is its function run_NAME and its row here;
// one over panel blocks for every instruction set, a line in quantized/types.h.
#include "backend/cpu/gemm/kernel_list.h"

#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

namespace {

const char* needs_nothing(const GemmProblem&, const DeviceCaps&) {
  return nullptr;
}

constexpr const char* kWholeBlocks = "k is not a multiple of 32, the block of quantized activations";

const char* needs_generic_blocks(const GemmProblem& problem, const DeviceCaps&) {
  return problem.k % 32 == 0 ? nullptr : kWholeBlocks;
}

#if IMP_X86
const char* needs_avx2(const GemmProblem&, const DeviceCaps& caps) {
  return caps.avx2 ? nullptr : "needs AVX2 with FMA and F16C";
}

const char* needs_avx512(const GemmProblem&, const DeviceCaps& caps) {
  return caps.avx512 ? nullptr : "needs AVX-512 (F, BW, VL, DQ)";
}

const char* needs_avx512_bf16(const GemmProblem&, const DeviceCaps& caps) {
  return caps.avx512 && caps.avx512_bf16 ? nullptr : "needs AVX-512 BF16";
}

const char* needs_avx2_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.k % 32 != 0) return kWholeBlocks;
  return needs_avx2(problem, caps);
}

const char* needs_avx2vnni_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.k % 32 != 0) return kWholeBlocks;
  return caps.avx2 && caps.avx_vnni ? nullptr : "needs AVX2 and AVX-VNNI";
}

const char* needs_avx512vnni_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.k % 32 != 0) return kWholeBlocks;
  return caps.avx512 && caps.avx512_vnni ? nullptr : "needs AVX-512 VNNI";
}
#endif

#if IMP_ARM
const char* needs_neondot_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.k % 32 != 0) return kWholeBlocks;
  return caps.neon_dot ? nullptr : "needs NEON's dot product";
}
#endif

std::size_t no_scratch(const GemmProblem&, int) {
  return 0;
}
std::size_t decoded_pieces(const GemmProblem&, int) {
  return dequantized_scratch_bytes();
}

using Refuses = decltype(GemmKernel::refuses);
using Run = decltype(GemmKernel::run);

constexpr GemmKernel over_panels(std::string_view name, DType weight, ActivationFormat activations,
                                 ReductionId reduction, Refuses refuses, Run run) {
  return {name,    weight,     false, WeightLayout::panel16, activations, kAnyRows, reduction, Maturity::validated,
          refuses, no_scratch, run};
}

constexpr GemmKernel over_q8_blocks(std::string_view name, DType weight, Refuses refuses, Run run) {
  return over_panels(name, weight, ActivationFormat::q8_block32, ReductionId::q8_block32, refuses, run);
}

constexpr GemmKernel over_float_panels(std::string_view name, DType weight, Refuses refuses, Run run) {
  return over_panels(name, weight, ActivationFormat::f32, ReductionId::f32_sequential, refuses, run);
}

constexpr GemmKernel over_bf16_pairs(std::string_view name, Refuses refuses, Run run) {
  return over_panels(name, DType::BF16, ActivationFormat::bf16, ReductionId::bf16_pairs, refuses, run);
}

constexpr GemmKernel over_any_type(std::string_view name, Refuses refuses, Run run) {
  return {name,
          DType::F32,
          true,
          WeightLayout::file,
          ActivationFormat::f32,
          kAnyRows,
          ReductionId::f32_sequential,
          Maturity::validated,
          refuses,
          decoded_pieces,
          run};
}

#define IMP_QUANTIZED_ROW(name, Type, isa) \
  over_q8_blocks(#name "_" #isa, DType::Type, needs_##isa##_blocks, run_##name##_##isa),

// The rows that a macro makes bring their commas, which the formatter does not see.
// clang-format off
constexpr GemmKernel kKernels[] = {
#if IMP_X86
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx512vnni)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx2vnni)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx2)
    over_float_panels("f32_avx512", DType::F32, needs_avx512, run_f32_avx512),
    over_float_panels("f32_avx2", DType::F32, needs_avx2, run_f32_avx2),
    over_float_panels("f16_avx512", DType::F16, needs_avx512, run_f16_avx512),
    over_float_panels("f16_avx2", DType::F16, needs_avx2, run_f16_avx2),
    over_float_panels("f8_e4m3_avx512", DType::F8_E4M3, needs_avx512, run_f8_e4m3_avx512),
    over_float_panels("f8_e4m3_avx2", DType::F8_E4M3, needs_avx2, run_f8_e4m3_avx2),
    over_bf16_pairs("bf16_avx512bf16", needs_avx512_bf16, run_bf16_avx512bf16),
    over_bf16_pairs("bf16_avx512", needs_avx512, run_bf16_avx512),
    over_bf16_pairs("bf16_avx2", needs_avx2, run_bf16_avx2),
    over_any_type("dequant_avx512", needs_avx512, run_dequant_avx512),
    over_any_type("dequant_avx2", needs_avx2, run_dequant_avx2),
#endif
#if IMP_ARM
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, neondot)
#endif
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, generic)
    over_float_panels("f32_generic", DType::F32, needs_nothing, run_f32_generic),
    over_float_panels("f16_generic", DType::F16, needs_nothing, run_f16_generic),
    over_float_panels("f8_e4m3_generic", DType::F8_E4M3, needs_nothing, run_f8_e4m3_generic),
    over_bf16_pairs("bf16_generic", needs_nothing, run_bf16_generic),
    over_any_type("reference", needs_nothing, run_reference),
};
// clang-format on

#undef IMP_QUANTIZED_ROW

}  // namespace

std::span<const GemmKernel> kernel_list() noexcept {
  return kKernels;
}

}  // namespace imp::cpu

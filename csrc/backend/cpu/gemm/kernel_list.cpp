// The CPU's kernels: one row each, best first. A new kernel is its function run_NAME and its row here.
#include "backend/cpu/gemm/kernel_list.h"

#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

namespace {

const char* needs_nothing(const GemmProblem&, const DeviceCaps&) {
  return nullptr;
}

constexpr const char* kWholeBlocks = "k is not a multiple of 32, the block of quantized activations";

const char* needs_whole_blocks(const GemmProblem& problem, const DeviceCaps&) {
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

const char* needs_vnni_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.k % 32 != 0) return kWholeBlocks;
  return caps.avx512 && caps.avx512_vnni ? nullptr : "needs AVX-512 VNNI";
}
#endif

#if IMP_ARM
const char* needs_neon_dot_blocks(const GemmProblem& problem, const DeviceCaps& caps) {
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

constexpr GemmKernel kKernels[] = {
#if IMP_X86
    over_q8_blocks("q8_0_avx512vnni", DType::Q8_0, needs_vnni_blocks, run_q8_0_avx512vnni),
    over_q8_blocks("q4_0_avx512vnni", DType::Q4_0, needs_vnni_blocks, run_q4_0_avx512vnni),
    over_q8_blocks("q4_1_avx512vnni", DType::Q4_1, needs_vnni_blocks, run_q4_1_avx512vnni),
    over_q8_blocks("q5_0_avx512vnni", DType::Q5_0, needs_vnni_blocks, run_q5_0_avx512vnni),
    over_q8_blocks("q5_1_avx512vnni", DType::Q5_1, needs_vnni_blocks, run_q5_1_avx512vnni),
    over_q8_blocks("q2_k_avx512vnni", DType::Q2_K, needs_vnni_blocks, run_q2_k_avx512vnni),
    over_q8_blocks("q3_k_avx512vnni", DType::Q3_K, needs_vnni_blocks, run_q3_k_avx512vnni),
    over_q8_blocks("q4_k_avx512vnni", DType::Q4_K, needs_vnni_blocks, run_q4_k_avx512vnni),
    over_q8_blocks("q5_k_avx512vnni", DType::Q5_K, needs_vnni_blocks, run_q5_k_avx512vnni),
    over_q8_blocks("q6_k_avx512vnni", DType::Q6_K, needs_vnni_blocks, run_q6_k_avx512vnni),
    over_q8_blocks("iq4_nl_avx512vnni", DType::IQ4_NL, needs_vnni_blocks, run_iq4_nl_avx512vnni),
    over_q8_blocks("iq4_xs_avx512vnni", DType::IQ4_XS, needs_vnni_blocks, run_iq4_xs_avx512vnni),
    over_q8_blocks("q8_0_avx2vnni", DType::Q8_0, needs_avx2vnni_blocks, run_q8_0_avx2vnni),
    over_q8_blocks("q4_0_avx2vnni", DType::Q4_0, needs_avx2vnni_blocks, run_q4_0_avx2vnni),
    over_q8_blocks("q4_1_avx2vnni", DType::Q4_1, needs_avx2vnni_blocks, run_q4_1_avx2vnni),
    over_q8_blocks("q5_0_avx2vnni", DType::Q5_0, needs_avx2vnni_blocks, run_q5_0_avx2vnni),
    over_q8_blocks("q5_1_avx2vnni", DType::Q5_1, needs_avx2vnni_blocks, run_q5_1_avx2vnni),
    over_q8_blocks("q2_k_avx2vnni", DType::Q2_K, needs_avx2vnni_blocks, run_q2_k_avx2vnni),
    over_q8_blocks("q3_k_avx2vnni", DType::Q3_K, needs_avx2vnni_blocks, run_q3_k_avx2vnni),
    over_q8_blocks("q4_k_avx2vnni", DType::Q4_K, needs_avx2vnni_blocks, run_q4_k_avx2vnni),
    over_q8_blocks("q5_k_avx2vnni", DType::Q5_K, needs_avx2vnni_blocks, run_q5_k_avx2vnni),
    over_q8_blocks("q6_k_avx2vnni", DType::Q6_K, needs_avx2vnni_blocks, run_q6_k_avx2vnni),
    over_q8_blocks("iq4_nl_avx2vnni", DType::IQ4_NL, needs_avx2vnni_blocks, run_iq4_nl_avx2vnni),
    over_q8_blocks("iq4_xs_avx2vnni", DType::IQ4_XS, needs_avx2vnni_blocks, run_iq4_xs_avx2vnni),
    over_q8_blocks("q8_0_avx2", DType::Q8_0, needs_avx2_blocks, run_q8_0_avx2),
    over_q8_blocks("q4_0_avx2", DType::Q4_0, needs_avx2_blocks, run_q4_0_avx2),
    over_q8_blocks("q4_1_avx2", DType::Q4_1, needs_avx2_blocks, run_q4_1_avx2),
    over_q8_blocks("q5_0_avx2", DType::Q5_0, needs_avx2_blocks, run_q5_0_avx2),
    over_q8_blocks("q5_1_avx2", DType::Q5_1, needs_avx2_blocks, run_q5_1_avx2),
    over_q8_blocks("q2_k_avx2", DType::Q2_K, needs_avx2_blocks, run_q2_k_avx2),
    over_q8_blocks("q3_k_avx2", DType::Q3_K, needs_avx2_blocks, run_q3_k_avx2),
    over_q8_blocks("q4_k_avx2", DType::Q4_K, needs_avx2_blocks, run_q4_k_avx2),
    over_q8_blocks("q5_k_avx2", DType::Q5_K, needs_avx2_blocks, run_q5_k_avx2),
    over_q8_blocks("q6_k_avx2", DType::Q6_K, needs_avx2_blocks, run_q6_k_avx2),
    over_q8_blocks("iq4_nl_avx2", DType::IQ4_NL, needs_avx2_blocks, run_iq4_nl_avx2),
    over_q8_blocks("iq4_xs_avx2", DType::IQ4_XS, needs_avx2_blocks, run_iq4_xs_avx2),
    over_float_panels("f32_avx512", DType::F32, needs_avx512, run_f32_avx512),
    over_float_panels("f32_avx2", DType::F32, needs_avx2, run_f32_avx2),
    over_float_panels("f16_avx512", DType::F16, needs_avx512, run_f16_avx512),
    over_float_panels("f16_avx2", DType::F16, needs_avx2, run_f16_avx2),
    over_bf16_pairs("bf16_avx512bf16", needs_avx512_bf16, run_bf16_avx512bf16),
    over_bf16_pairs("bf16_avx512", needs_avx512, run_bf16_avx512),
    over_bf16_pairs("bf16_avx2", needs_avx2, run_bf16_avx2),
    over_any_type("dequant_avx512", needs_avx512, run_dequant_avx512),
    over_any_type("dequant_avx2", needs_avx2, run_dequant_avx2),
#endif
#if IMP_ARM
    over_q8_blocks("q8_0_neondot", DType::Q8_0, needs_neon_dot_blocks, run_q8_0_neondot),
    over_q8_blocks("q4_0_neondot", DType::Q4_0, needs_neon_dot_blocks, run_q4_0_neondot),
    over_q8_blocks("q4_1_neondot", DType::Q4_1, needs_neon_dot_blocks, run_q4_1_neondot),
    over_q8_blocks("q5_0_neondot", DType::Q5_0, needs_neon_dot_blocks, run_q5_0_neondot),
    over_q8_blocks("q5_1_neondot", DType::Q5_1, needs_neon_dot_blocks, run_q5_1_neondot),
    over_q8_blocks("q2_k_neondot", DType::Q2_K, needs_neon_dot_blocks, run_q2_k_neondot),
    over_q8_blocks("q3_k_neondot", DType::Q3_K, needs_neon_dot_blocks, run_q3_k_neondot),
    over_q8_blocks("q4_k_neondot", DType::Q4_K, needs_neon_dot_blocks, run_q4_k_neondot),
    over_q8_blocks("q5_k_neondot", DType::Q5_K, needs_neon_dot_blocks, run_q5_k_neondot),
    over_q8_blocks("q6_k_neondot", DType::Q6_K, needs_neon_dot_blocks, run_q6_k_neondot),
    over_q8_blocks("iq4_nl_neondot", DType::IQ4_NL, needs_neon_dot_blocks, run_iq4_nl_neondot),
    over_q8_blocks("iq4_xs_neondot", DType::IQ4_XS, needs_neon_dot_blocks, run_iq4_xs_neondot),
#endif
    over_q8_blocks("q8_0_generic", DType::Q8_0, needs_whole_blocks, run_q8_0_generic),
    over_q8_blocks("q4_0_generic", DType::Q4_0, needs_whole_blocks, run_q4_0_generic),
    over_q8_blocks("q4_1_generic", DType::Q4_1, needs_whole_blocks, run_q4_1_generic),
    over_q8_blocks("q5_0_generic", DType::Q5_0, needs_whole_blocks, run_q5_0_generic),
    over_q8_blocks("q5_1_generic", DType::Q5_1, needs_whole_blocks, run_q5_1_generic),
    over_q8_blocks("q2_k_generic", DType::Q2_K, needs_whole_blocks, run_q2_k_generic),
    over_q8_blocks("q3_k_generic", DType::Q3_K, needs_whole_blocks, run_q3_k_generic),
    over_q8_blocks("q4_k_generic", DType::Q4_K, needs_whole_blocks, run_q4_k_generic),
    over_q8_blocks("q5_k_generic", DType::Q5_K, needs_whole_blocks, run_q5_k_generic),
    over_q8_blocks("q6_k_generic", DType::Q6_K, needs_whole_blocks, run_q6_k_generic),
    over_q8_blocks("iq4_nl_generic", DType::IQ4_NL, needs_whole_blocks, run_iq4_nl_generic),
    over_q8_blocks("iq4_xs_generic", DType::IQ4_XS, needs_whole_blocks, run_iq4_xs_generic),
    over_float_panels("f32_generic", DType::F32, needs_nothing, run_f32_generic),
    over_float_panels("f16_generic", DType::F16, needs_nothing, run_f16_generic),
    over_bf16_pairs("bf16_generic", needs_nothing, run_bf16_generic),
    over_any_type("reference", needs_nothing, run_reference),
};

}  // namespace

std::span<const GemmKernel> kernel_list() noexcept {
  return kKernels;
}

}  // namespace imp::cpu

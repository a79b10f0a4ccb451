// The CPU's kernels, one row each, best first. A new kernel needs its function run_NAME and its row here. One on panel
// blocks for every instruction set needs a line in quantized/types.h.
#include "backend/cpu/gemm/kernel_list.h"

#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/panel_product.h"

namespace imp::cpu {

namespace {

const char* refuses_nothing(const GemmProblem&, const DeviceCaps&) {
  return nullptr;
}

const char* refuses_parts_of_blocks(const GemmProblem& problem, const DeviceCaps&) {
  return problem.k % 32 == 0 ? nullptr : "k is not a multiple of 32, the block of quantized activations";
}

std::size_t no_scratch(const GemmProblem&, int) {
  return 0;
}
std::size_t decoded_pieces(const GemmProblem&, int) {
  return dequantized_scratch_bytes();
}
std::size_t pieces_of_panels(const GemmProblem&, int) {
  return sizeof(DecodedPieces);
}

using Refuses = decltype(GemmKernel::refuses);
using Run = decltype(GemmKernel::run);

constexpr GemmKernel over_panels(std::string_view name, DType weight, ActivationFormat activations,
                                 ReductionId reduction, Refuses refuses, CpuFeatures needs, Run run) {
  return {.name = name,
          .weight = weight,
          .any_weight = false,
          .layout = WeightLayout::panel16,
          .activations = activations,
          .max_m = kAnyRows,
          .reduction = reduction,
          .validated = true,
          .refuses = refuses,
          .scratch_bytes = no_scratch,
          .run = run,
          .needs = needs};
}

constexpr GemmKernel over_q8_blocks(std::string_view name, DType weight, CpuFeatures needs, Run run) {
  return over_panels(name, weight, ActivationFormat::q8_block32, ReductionId::q8_block32, refuses_parts_of_blocks,
                     needs, run);
}

// A kernel that has not run on its hardware, or was slower there. Only an override selects it.
constexpr GemmKernel unvalidated(GemmKernel row) {
  row.validated = false;
  return row;
}

// They have run on hardware, where they were slower than VNNI from 9 rows, which fill more than half of a tile, to 32.
constexpr GemmKernel over_q8_tiles(std::string_view name, DType weight, CpuFeatures needs, Run run) {
  GemmKernel row = unvalidated(over_q8_blocks(name, weight, needs, run));
  row.min_preferred_m = 9;
  return row;
}

constexpr GemmKernel over_float_panels(std::string_view name, DType weight, CpuFeatures needs, Run run) {
  return over_panels(name, weight, ActivationFormat::f32, ReductionId::f32_sequential, refuses_nothing, needs, run);
}

constexpr GemmKernel over_bf16_pairs(std::string_view name, CpuFeatures needs, Run run) {
  return over_panels(name, DType::BF16, ActivationFormat::bf16, ReductionId::bf16_pairs, refuses_nothing, needs, run);
}

constexpr GemmKernel over_any_type(std::string_view name, CpuFeatures needs, Run run) {
  return {.name = name,
          .weight = DType::F32,
          .any_weight = true,
          .layout = WeightLayout::file,
          .activations = ActivationFormat::f32,
          .max_m = kAnyRows,
          .reduction = ReductionId::f32_sequential,
          .validated = true,
          .refuses = refuses_nothing,
          .scratch_bytes = decoded_pieces,
          .run = run,
          .needs = needs};
}

// Decodes panels for many rows.
constexpr GemmKernel decoding(GemmKernel row) {
  row.scratch_bytes = pieces_of_panels;
  return row;
}

#define IMP_QUANTIZED_ROW(name, Type, isa) over_q8_blocks(#name "_" #isa, DType::Type, needs::isa, run_##name##_##isa),
#define IMP_UNVALIDATED_ROW(name, Type, isa) \
  unvalidated(over_q8_blocks(#name "_" #isa, DType::Type, needs::isa, run_##name##_##isa)),
#define IMP_TILED_ROW(name, Type, isa) over_q8_tiles(#name "_" #isa, DType::Type, needs::isa, run_##name##_##isa),
#define IMP_SHAPED_ROW(name, Type, isa, rows, panels) \
  over_q8_blocks(#name "_" #isa "_" #rows "x" #panels, DType::Type, needs::isa, run_##name##_##isa##_##rows##x##panels),

// The macro's rows end in commas, which the formatter does not see.
// clang-format off
constexpr GemmKernel kKernels[] = {
#if IMP_X86
    IMP_GROUP_SCALED_TYPES(IMP_TILED_ROW, amxint8)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx512vnni)
    IMP_TILE_SHAPES(IMP_SHAPED_ROW, avx512vnni)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx2vnni)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, avx2)
    over_float_panels("f32_avx512", DType::F32, needs::avx512, run_f32_avx512),
    over_float_panels("f32_avx2", DType::F32, needs::avx2, run_f32_avx2),
    decoding(over_float_panels("f16_avx512", DType::F16, needs::avx512, run_f16_avx512)),
    over_float_panels("f16_avx2", DType::F16, needs::avx2, run_f16_avx2),
    over_float_panels("f8_e4m3_avx512", DType::F8_E4M3, needs::avx512, run_f8_e4m3_avx512),
    over_float_panels("f8_e4m3_avx2", DType::F8_E4M3, needs::avx2, run_f8_e4m3_avx2),
    over_bf16_pairs("bf16_avx512bf16", needs::avx512bf16, run_bf16_avx512bf16),
    decoding(over_bf16_pairs("bf16_avx512", needs::avx512, run_bf16_avx512)),
    decoding(over_bf16_pairs("bf16_avx2", needs::avx2, run_bf16_avx2)),
    over_any_type("dequant_avx512", needs::avx512, run_dequant_avx512),
    over_any_type("dequant_avx2", needs::avx2, run_dequant_avx2),
#endif
#if IMP_ARM
    IMP_QUANTIZED_TYPES(IMP_UNVALIDATED_ROW, neoni8mm)
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, neondot)
#endif
    IMP_QUANTIZED_TYPES(IMP_QUANTIZED_ROW, generic)
    over_float_panels("f32_generic", DType::F32, needs::generic, run_f32_generic),
    over_float_panels("f16_generic", DType::F16, needs::generic, run_f16_generic),
    over_float_panels("f8_e4m3_generic", DType::F8_E4M3, needs::generic, run_f8_e4m3_generic),
    over_bf16_pairs("bf16_generic", needs::generic, run_bf16_generic),
    over_any_type("reference", needs::generic, run_reference),
};
// clang-format on

#undef IMP_QUANTIZED_ROW
#undef IMP_UNVALIDATED_ROW
#undef IMP_TILED_ROW
#undef IMP_SHAPED_ROW

}  // namespace

std::span<const GemmKernel> kernel_list() noexcept {
  return kKernels;
}

}  // namespace imp::cpu

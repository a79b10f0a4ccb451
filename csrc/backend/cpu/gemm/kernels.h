// The kernels' entry points; plain declarations, so that files compiled for one instruction set can include them.
#pragma once

#include "backend/cpu/gemm/quantized/types.h"
#include "backend/gemm_args.h"

// Calls `use(name, Element, isa)` for each type of floats; Element is its name in float_panels.inl.
// clang-format off
#define IMP_FLOAT_TYPES(use, isa) \
  use(f32, F32, isa) \
  use(f16, F16, isa) \
  use(f8_e4m3, F8, isa) \
  use(bf16, PairBF16, isa)
// clang-format on

namespace imp::cpu {

#define IMP_DECLARE_RUN(name, Type, isa) void run_##name##_##isa(const GemmArgs& args);
IMP_GROUP_SCALED_TYPES(IMP_DECLARE_RUN, amxint8)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx512vnni)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx2vnni)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx2)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, neoni8mm)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, neondot)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, generic)
IMP_FLOAT_TYPES(IMP_DECLARE_RUN, avx512)
IMP_FLOAT_TYPES(IMP_DECLARE_RUN, avx2)
IMP_FLOAT_TYPES(IMP_DECLARE_RUN, generic)
#undef IMP_DECLARE_RUN

#define IMP_DECLARE_SHAPED_RUN(name, Type, isa, rows, panels) \
  void run_##name##_##isa##_##rows##x##panels(const GemmArgs& args);
IMP_TILE_SHAPES(IMP_DECLARE_SHAPED_RUN, avx512vnni)
#undef IMP_DECLARE_SHAPED_RUN

void run_bf16_avx512bf16(const GemmArgs& args);
void run_dequant_avx512(const GemmArgs& args);
void run_dequant_avx2(const GemmArgs& args);
void run_reference(const GemmArgs& args);

}  // namespace imp::cpu

// The kernels' entry points; plain declarations, so that files compiled for one instruction set can include them.
#pragma once

#include "backend/cpu/gemm/quantized/types.h"
#include "backend/gemm_args.h"

namespace imp::cpu {

#define IMP_DECLARE_RUN(name, Type, isa) void run_##name##_##isa(const GemmArgs& args);
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx512vnni)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx2vnni)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, avx2)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, neondot)
IMP_QUANTIZED_TYPES(IMP_DECLARE_RUN, generic)
#undef IMP_DECLARE_RUN

void run_f32_avx512(const GemmArgs& args);
void run_f32_avx2(const GemmArgs& args);
void run_f32_generic(const GemmArgs& args);
void run_f16_avx512(const GemmArgs& args);
void run_f16_avx2(const GemmArgs& args);
void run_f16_generic(const GemmArgs& args);
void run_f8_e4m3_avx512(const GemmArgs& args);
void run_f8_e4m3_avx2(const GemmArgs& args);
void run_f8_e4m3_generic(const GemmArgs& args);
void run_bf16_avx512bf16(const GemmArgs& args);
void run_bf16_avx512(const GemmArgs& args);
void run_bf16_avx2(const GemmArgs& args);
void run_bf16_generic(const GemmArgs& args);
void run_dequant_avx512(const GemmArgs& args);
void run_dequant_avx2(const GemmArgs& args);
void run_reference(const GemmArgs& args);

}  // namespace imp::cpu

// The kernels' entry points; plain declarations, so that files compiled for one instruction set can include them.
#pragma once

#include "backend/gemm_args.h"

namespace imp::cpu {

void run_q8_0_avx512vnni(const GemmArgs& args);
void run_q8_0_avx2(const GemmArgs& args);
void run_f32_avx512(const GemmArgs& args);
void run_f32_avx2(const GemmArgs& args);
void run_f16_avx512(const GemmArgs& args);
void run_f16_avx2(const GemmArgs& args);
void run_bf16_avx512(const GemmArgs& args);
void run_bf16_avx2(const GemmArgs& args);
void run_dequant_avx512(const GemmArgs& args);
void run_dequant_avx2(const GemmArgs& args);
void run_reference(const GemmArgs& args);

}  // namespace imp::cpu

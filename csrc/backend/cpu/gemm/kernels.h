// The kernels' entry points; plain declarations, so that files compiled for one instruction set can include them.
#pragma once

#include "backend/gemm_args.h"

namespace imp::cpu {

void run_q8_0_avx512vnni(const GemmArgs& args);
void run_q8_0_avx2vnni(const GemmArgs& args);
void run_q8_0_avx2(const GemmArgs& args);
void run_q8_0_neondot(const GemmArgs& args);
void run_q8_0_generic(const GemmArgs& args);
void run_q4_0_avx512vnni(const GemmArgs& args);
void run_q4_0_avx2vnni(const GemmArgs& args);
void run_q4_0_avx2(const GemmArgs& args);
void run_q4_0_neondot(const GemmArgs& args);
void run_q4_0_generic(const GemmArgs& args);
void run_q4_1_avx512vnni(const GemmArgs& args);
void run_q4_1_avx2vnni(const GemmArgs& args);
void run_q4_1_avx2(const GemmArgs& args);
void run_q4_1_neondot(const GemmArgs& args);
void run_q4_1_generic(const GemmArgs& args);
void run_q5_0_avx512vnni(const GemmArgs& args);
void run_q5_0_avx2vnni(const GemmArgs& args);
void run_q5_0_avx2(const GemmArgs& args);
void run_q5_0_neondot(const GemmArgs& args);
void run_q5_0_generic(const GemmArgs& args);
void run_q5_1_avx512vnni(const GemmArgs& args);
void run_q5_1_avx2vnni(const GemmArgs& args);
void run_q5_1_avx2(const GemmArgs& args);
void run_q5_1_neondot(const GemmArgs& args);
void run_q5_1_generic(const GemmArgs& args);
void run_q2_k_avx512vnni(const GemmArgs& args);
void run_q2_k_avx2vnni(const GemmArgs& args);
void run_q2_k_avx2(const GemmArgs& args);
void run_q2_k_neondot(const GemmArgs& args);
void run_q2_k_generic(const GemmArgs& args);
void run_q3_k_avx512vnni(const GemmArgs& args);
void run_q3_k_avx2vnni(const GemmArgs& args);
void run_q3_k_avx2(const GemmArgs& args);
void run_q3_k_neondot(const GemmArgs& args);
void run_q3_k_generic(const GemmArgs& args);
void run_q4_k_avx512vnni(const GemmArgs& args);
void run_q4_k_avx2vnni(const GemmArgs& args);
void run_q4_k_avx2(const GemmArgs& args);
void run_q4_k_neondot(const GemmArgs& args);
void run_q4_k_generic(const GemmArgs& args);
void run_q5_k_avx512vnni(const GemmArgs& args);
void run_q5_k_avx2vnni(const GemmArgs& args);
void run_q5_k_avx2(const GemmArgs& args);
void run_q5_k_neondot(const GemmArgs& args);
void run_q5_k_generic(const GemmArgs& args);
void run_q6_k_avx512vnni(const GemmArgs& args);
void run_q6_k_avx2vnni(const GemmArgs& args);
void run_q6_k_avx2(const GemmArgs& args);
void run_q6_k_neondot(const GemmArgs& args);
void run_q6_k_generic(const GemmArgs& args);
void run_iq4_nl_avx512vnni(const GemmArgs& args);
void run_iq4_nl_avx2vnni(const GemmArgs& args);
void run_iq4_nl_avx2(const GemmArgs& args);
void run_iq4_nl_neondot(const GemmArgs& args);
void run_iq4_nl_generic(const GemmArgs& args);
void run_iq4_xs_avx512vnni(const GemmArgs& args);
void run_iq4_xs_avx2vnni(const GemmArgs& args);
void run_iq4_xs_avx2(const GemmArgs& args);
void run_iq4_xs_neondot(const GemmArgs& args);
void run_iq4_xs_generic(const GemmArgs& args);
void run_f32_avx512(const GemmArgs& args);
void run_f32_avx2(const GemmArgs& args);
void run_f32_generic(const GemmArgs& args);
void run_f16_avx512(const GemmArgs& args);
void run_f16_avx2(const GemmArgs& args);
void run_f16_generic(const GemmArgs& args);
void run_bf16_avx512bf16(const GemmArgs& args);
void run_bf16_avx512(const GemmArgs& args);
void run_bf16_avx2(const GemmArgs& args);
void run_bf16_generic(const GemmArgs& args);
void run_dequant_avx512(const GemmArgs& args);
void run_dequant_avx2(const GemmArgs& args);
void run_reference(const GemmArgs& args);

}  // namespace imp::cpu

// The functions of cuBLASLt's rows in the kernel list.
#pragma once

#include "backend/gemm.h"
#include "backend/gemm_launch.h"

namespace imp::cuda {

// Bounded for any weight.
std::size_t cublaslt_scratch_bytes(const GemmProblem& problem, int m);
void prepare_cublaslt(const GemmProblem& problem, void* stream);

// Any number of rows, and faster for many: f16_even_odd for quantized types and F8_E4M3, f16_rows for F16, bf16_rows
// for BF16. Never for experts.
void launch_q8_0_cublaslt(const GemmLaunch& launch);
void launch_q4_0_cublaslt(const GemmLaunch& launch);
void launch_q4_k_cublaslt(const GemmLaunch& launch);
void launch_q5_k_cublaslt(const GemmLaunch& launch);
void launch_q6_k_cublaslt(const GemmLaunch& launch);
void launch_f8_e4m3_cublaslt(const GemmLaunch& launch);
void launch_f16_cublaslt(const GemmLaunch& launch);
void launch_bf16_cublaslt(const GemmLaunch& launch);

}  // namespace imp::cuda

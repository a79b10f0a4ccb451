// The kernels over tile16 for many rows: their functions, for the list.
#pragma once

#include "backend/gemm_launch.h"

namespace imp::cuda {

// Any number of rows: f16_even_odd by integers and F8_E4M3, f16_rows by F16, bf16_rows by BF16.
void launch_q8_0_hmma(const GemmLaunch& launch);
void launch_q4_0_hmma(const GemmLaunch& launch);
void launch_q4_k_hmma(const GemmLaunch& launch);
void launch_q5_k_hmma(const GemmLaunch& launch);
void launch_q6_k_hmma(const GemmLaunch& launch);
void launch_f8_e4m3_hmma(const GemmLaunch& launch);
void launch_f16_hmma(const GemmLaunch& launch);
void launch_bf16_hmma(const GemmLaunch& launch);

// Likewise, and the same sums. Rows that belong to experts are multiplied by the kernel above.
void launch_q8_0_wgmma(const GemmLaunch& launch);
void launch_q4_0_wgmma(const GemmLaunch& launch);
void launch_q4_k_wgmma(const GemmLaunch& launch);
void launch_q5_k_wgmma(const GemmLaunch& launch);
void launch_q6_k_wgmma(const GemmLaunch& launch);
void launch_f8_e4m3_wgmma(const GemmLaunch& launch);
void launch_f16_wgmma(const GemmLaunch& launch);
void launch_bf16_wgmma(const GemmLaunch& launch);

}  // namespace imp::cuda

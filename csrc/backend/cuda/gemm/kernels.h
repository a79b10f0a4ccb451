// The matrix kernels' functions for the list. Each takes one type of weights in tile16, except the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm_launch.h"

namespace imp::cuda {

// Up to four rows of q8_rows. The shared memory of a block:
std::size_t dp4a_shared_bytes(std::int64_t k) noexcept;
void launch_q8_0_dp4a(const GemmLaunch& launch);
void launch_q4_0_dp4a(const GemmLaunch& launch);
void launch_q4_k_dp4a(const GemmLaunch& launch);
void launch_q5_k_dp4a(const GemmLaunch& launch);
void launch_q6_k_dp4a(const GemmLaunch& launch);

// Any number of rows of q8_rows, with the same bits.
void launch_q8_0_imma(const GemmLaunch& launch);
void launch_q4_0_imma(const GemmLaunch& launch);
void launch_q4_k_imma(const GemmLaunch& launch);
void launch_q5_k_imma(const GemmLaunch& launch);
void launch_q6_k_imma(const GemmLaunch& launch);

// Any number of rows of f16_even_odd, f16_rows and bf16_rows.
void launch_f8_e4m3_mma(const GemmLaunch& launch);
void launch_f16_mma(const GemmLaunch& launch);
void launch_bf16_mma(const GemmLaunch& launch);

// Any number of rows, meant for many: f16_even_odd for quantized types and F8_E4M3, f16_rows for F16, bf16_rows for
// BF16.
void launch_q8_0_hmma(const GemmLaunch& launch);
void launch_q4_0_hmma(const GemmLaunch& launch);
void launch_q4_k_hmma(const GemmLaunch& launch);
void launch_q5_k_hmma(const GemmLaunch& launch);
void launch_q6_k_hmma(const GemmLaunch& launch);
void launch_f8_e4m3_hmma(const GemmLaunch& launch);
void launch_f16_hmma(const GemmLaunch& launch);
void launch_bf16_hmma(const GemmLaunch& launch);

// The same formats and the same sums, without experts.
void launch_q8_0_wgmma(const GemmLaunch& launch);
void launch_q4_0_wgmma(const GemmLaunch& launch);
void launch_q4_k_wgmma(const GemmLaunch& launch);
void launch_q5_k_wgmma(const GemmLaunch& launch);
void launch_q6_k_wgmma(const GemmLaunch& launch);
void launch_f8_e4m3_wgmma(const GemmLaunch& launch);
void launch_f16_wgmma(const GemmLaunch& launch);
void launch_bf16_wgmma(const GemmLaunch& launch);

// Any type of weights in the file's layout.
void launch_reference(const GemmLaunch& launch);

}  // namespace imp::cuda

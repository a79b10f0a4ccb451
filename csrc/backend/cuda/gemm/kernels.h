// The matrix kernels' functions, for the list: each takes one type of weights from tile16, but for the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm_launch.h"

namespace imp::cuda {

// Up to four rows of q8_rows. Shared memory that a block may need:
std::size_t dp4a_shared_bytes(std::int64_t k) noexcept;
void launch_q8_0_dp4a(const GemmLaunch& launch);
void launch_q4_0_dp4a(const GemmLaunch& launch);
void launch_q4_k_dp4a(const GemmLaunch& launch);
void launch_q5_k_dp4a(const GemmLaunch& launch);
void launch_q6_k_dp4a(const GemmLaunch& launch);

// Any number of rows of q8_rows; the bits of those above.
void launch_q8_0_imma(const GemmLaunch& launch);
void launch_q4_0_imma(const GemmLaunch& launch);
void launch_q4_k_imma(const GemmLaunch& launch);
void launch_q5_k_imma(const GemmLaunch& launch);
void launch_q6_k_imma(const GemmLaunch& launch);

// Any number of f16_even_odd, of f16_rows and of bf16_rows.
void launch_f8_e4m3_mma(const GemmLaunch& launch);
void launch_f16_mma(const GemmLaunch& launch);
void launch_bf16_mma(const GemmLaunch& launch);

// Any number of rows, and meant for many: f16_even_odd by integers and F8_E4M3, f16_rows by F16, bf16_rows by BF16.
void launch_q8_0_hmma(const GemmLaunch& launch);
void launch_q4_0_hmma(const GemmLaunch& launch);
void launch_q4_k_hmma(const GemmLaunch& launch);
void launch_q5_k_hmma(const GemmLaunch& launch);
void launch_q6_k_hmma(const GemmLaunch& launch);
void launch_f8_e4m3_hmma(const GemmLaunch& launch);
void launch_f16_hmma(const GemmLaunch& launch);
void launch_bf16_hmma(const GemmLaunch& launch);

// Of the same rows the same sums. Those of experts are multiplied by the kernel above.
void launch_q8_0_wgmma(const GemmLaunch& launch);
void launch_q4_0_wgmma(const GemmLaunch& launch);
void launch_q4_k_wgmma(const GemmLaunch& launch);
void launch_q5_k_wgmma(const GemmLaunch& launch);
void launch_q6_k_wgmma(const GemmLaunch& launch);
void launch_f8_e4m3_wgmma(const GemmLaunch& launch);
void launch_f16_wgmma(const GemmLaunch& launch);
void launch_bf16_wgmma(const GemmLaunch& launch);

// Any type of weights, from the file's layout.
void launch_reference(const GemmLaunch& launch);

}  // namespace imp::cuda

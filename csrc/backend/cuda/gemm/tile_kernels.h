// The kernels over tile16 that are made for one type of weights each: their functions, for the list.
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

}  // namespace imp::cuda

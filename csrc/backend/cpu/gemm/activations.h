// How rows of activations are prepared for the kernels that do not read them as floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/prepare_row.h"
#include "backend/gemm.h"

namespace imp::cpu {

// The fastest form that the device can run; nullptr for a format that is the floats themselves.
PrepareRow preparer_for(ActivationFormat format, const DeviceCaps& caps) noexcept;

// Bytes of a row of k elements that it prepares, a multiple of 4; 0 where there is nothing to prepare.
std::ptrdiff_t prepared_bytes(ActivationFormat format, std::int64_t k) noexcept;

// Bytes of a row of k elements as kernels of the format read it, whether it is prepared or not.
std::ptrdiff_t activation_bytes(ActivationFormat format, std::int64_t k) noexcept;

}  // namespace imp::cpu

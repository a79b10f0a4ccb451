// Prepares rows of activations for kernels that do not read floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/prepare_row.h"
#include "backend/gemm.h"

namespace imp::cpu {

// The fastest function that the device can run; nullptr if the format is the floats themselves.
PrepareRow preparer_for(ActivationFormat format, const DeviceCaps& caps) noexcept;

// Bytes of a prepared row of k elements, a multiple of 4; 0 if nothing is prepared.
std::ptrdiff_t prepared_bytes(ActivationFormat format, std::int64_t k) noexcept;

// Bytes of a row of k elements in this format, prepared or not.
std::ptrdiff_t activation_bytes(ActivationFormat format, std::int64_t k) noexcept;

}  // namespace imp::cpu

// Chooses how activations are quantized.
#pragma once

#include "backend/cpu/gemm/quantize_row.h"
#include "backend/gemm.h"

namespace imp::cpu {

// The fastest form that the device can run.
QuantizeRow quantizer_for(const DeviceCaps& caps) noexcept;

}  // namespace imp::cpu

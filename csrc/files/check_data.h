// Reads all data of a checkpoint, to check it before serving.
#pragma once

#include <cstdint>

#include "files/model_file.h"

namespace imp {

enum class Scan : std::uint8_t { BYTES, VALUES };

// Reads every tensor through a bounded buffer. Scan::VALUES also decodes it and throws MODEL_NONFINITE with tensor and
// element at the first NaN or infinity. In a quantized type these come only from a block's scale.
void check_data(const ModelFile& model, Scan scan);

// Checks one tensor.
void check_data(const ModelFile& model, const TensorInfo& tensor, Scan scan);

}  // namespace imp

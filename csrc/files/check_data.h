// Reads a checkpoint's data from end to end, for someone who wants to know before serving it.
#pragma once

#include <cstdint>

#include "files/model_file.h"

namespace imp {

enum class Scan : std::uint8_t { BYTES, VALUES };

// Reads every tensor through a bounded buffer. Scan::VALUES also decodes it and throws MODEL_NONFINITE, naming tensor
// and element, at the first NaN or infinity: in a quantized type these can only come from a block's scale.
void check_data(const ModelFile& model, Scan scan);

// The same for one tensor.
void check_data(const ModelFile& model, const TensorInfo& tensor, Scan scan);

}  // namespace imp

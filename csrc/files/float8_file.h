// Weights of F8_E4M3 put together from the two tensors that a checkpoint has of each: codes and scales.
#pragma once

#include <memory>

#include "files/model_file.h"

namespace imp {

// `file` has codes of F8_E4M3, a byte each, whose sizes are not yet those of the type; without such tensors it comes
// back as it is. In what comes back they are tensors of blocks (tensor/quant/f8_e4m3.h), `X.weight` with the scales of
// `X.weight_scale` or `X.weight_scale_inv`: one for the tensor, one for each row, or one for each piece of as many rows
// and columns as the configuration says. Tensors of scales are read at once and no longer listed; nor are those of
// activations.
//
// Throws ModelError: MODEL_UNSUPPORTED where the configuration describes other weights, MODEL_TENSOR for scales that
// are missing, MODEL_SHAPE, MODEL_NONFINITE and MODEL_VALUE for those that cannot be. To read codes that are NaN is
// MODEL_NONFINITE, naming tensor and element.
std::unique_ptr<ModelFile> with_float8_scales(std::unique_ptr<ModelFile> file);

}  // namespace imp

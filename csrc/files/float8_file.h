// Combines the two tensors that a checkpoint has for each F8_E4M3 weight: codes and scales.
#pragma once

#include <memory>

#include "files/model_file.h"

namespace imp {

// `file` has F8_E4M3 codes, a byte each. A file without such tensors is returned unchanged. The result has tensors of
// blocks (tensor/quant/f8_e4m3.h): `X.weight` with the scales of `X.weight_scale` or `X.weight_scale_inv`, one per
// tensor, per row, or per tile of the configured size. The call reads all scales. The result lists neither these
// tensors nor the scales of activations.
//
// Throws ModelError: MODEL_UNSUPPORTED if the configuration describes other weights, MODEL_TENSOR for missing scales,
// MODEL_SHAPE, MODEL_NONFINITE and MODEL_VALUE for invalid ones. Reading a NaN code throws MODEL_NONFINITE with tensor
// and element.
std::unique_ptr<ModelFile> with_float8_scales(std::unique_ptr<ModelFile> file);

}  // namespace imp

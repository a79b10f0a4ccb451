// Combines the two tensors that a safetensors checkpoint has for each MXFP4 weight: levels and exponents.
#pragma once

#include <memory>
#include <string_view>

#include "files/model_file.h"

namespace imp {

// Whether a tensor of bytes may be one of the two, by its name.
bool is_part_of_mxfp4(std::string_view name) noexcept;

// `file` has the bytes of both as MXFP4, an element each: `X_blocks` with 16 bytes for each 32 weights, and `X_scales`
// with an exponent for them. A file without such tensors is returned unchanged. The result has tensors X of blocks
// (tensor/quant/mxfp4.h) instead of both.
//
// Throws ModelError: MODEL_TENSOR for a part without the other, MODEL_SHAPE for parts that do not fit. Reading the
// exponent of NaN throws MODEL_NONFINITE with tensor and block.
std::unique_ptr<ModelFile> with_mxfp4_scales(std::unique_ptr<ModelFile> file);

}  // namespace imp

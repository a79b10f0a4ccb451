// What a config.json says of weights of eight bits: which tensors hold their scales, and for what each scale is.
#pragma once

#include <cstdint>
#include <optional>

#include "files/metadata.h"

namespace imp {

struct Float8Scheme {
  // A scale's piece of a weight, where the configuration states one: rows and columns. Else the scales' shape says.
  std::int64_t block_rows = 0, block_columns = 0;
};

// None where the configuration says nothing of quantization. Throws ModelError(MODEL_UNSUPPORTED), naming what is
// supported, for a scheme under which a weight is not its E4M3 code times a scale.
//
// Scales of activations and of cached keys and values are without effect here: neither is rounded to eight bits.
std::optional<Float8Scheme> float8_scheme(const Metadata& config);

// Whether a key of config.json belongs to the description of such a scheme.
bool is_quantization_key(std::string_view key) noexcept;

}  // namespace imp
